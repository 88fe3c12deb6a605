# libexogpu as another program sees it: install it, build example.c with what pkg-config says, run it, and see that the
# library, and libexogpu_client beside it, export their own names only, each with its version, and what was recorded for
# that version (abi.py).
#
#   cmake -DBUILD=DIR -DCC=cc -DFLAGS=-fsanitize=address -DSOVERSION=0 -DPYTHON=python3 -P installed.cmake
set(prefix ${BUILD}/installed)
file(REMOVE_RECURSE ${prefix})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix} --component library
	OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE pc ${prefix}/exogpu.pc)
get_filename_component(pc_dir "${pc}" DIRECTORY)
get_filename_component(lib_dir "${pc_dir}" DIRECTORY)
execute_process(COMMAND ${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${pc_dir} pkg-config --cflags --libs exogpu
	OUTPUT_VARIABLE flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags} ${FLAGS}")
execute_process(COMMAND ${CC} -std=c11 -Wall -Wextra -Wpedantic -Werror -o ${prefix}/example
	${CMAKE_CURRENT_LIST_DIR}/example.c ${flags} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${lib_dir} ${prefix}/example cpu COMMAND_ERROR_IS_FATAL ANY)

foreach(library exogpu exogpu_client)
	execute_process(COMMAND nm -D --defined-only --with-symbol-versions ${lib_dir}/lib${library}.so.${SOVERSION} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
	string(REGEX MATCHALL "[^ \n]+\n" names "${symbols}")
	set(count 0)
	foreach(name ${names})
		string(STRIP ${name} name)
		if(name STREQUAL "EXOGPU_${SOVERSION}") # the version itself
			continue()
		endif()
		if(NOT name MATCHES "^(${library}_[a-z_]+|status_text|status_word)@@EXOGPU_${SOVERSION}$")
			message(SEND_ERROR "lib${library} exports ${name}")
		endif()
		math(EXPR count "${count} + 1")
	endforeach()
	file(STRINGS ${prefix}/include/exogpu-0/exogpu/${library}.h public REGEX "^EXOGPU_PUBLIC ")
	list(LENGTH public wanted)
	math(EXPR wanted "${wanted} + 2") # of status.h
	message(STATUS "lib${library}: ${count} names exported, ${wanted} in the headers")
	if(NOT count EQUAL wanted)
		message(SEND_ERROR "what lib${library} exports is not what its headers name")
	endif()
endforeach()

if(NOT PYTHON)
	message(STATUS "no python3: what a program relies on was not compared with what is recorded")
	return()
endif()
file(WRITE ${prefix}/abi.c "#include <exogpu/exogpu.h>\n#include <exogpu/exogpu_client.h>\n")
execute_process(COMMAND ${CC} -E -P -I${prefix}/include/exogpu-${SOVERSION} ${prefix}/abi.c OUTPUT_FILE ${prefix}/abi.i
	COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${PYTHON} -B ${CMAKE_CURRENT_LIST_DIR}/abi.py ${SOVERSION}
	${CMAKE_CURRENT_LIST_DIR}/../../../engine/include ${prefix}/abi.i COMMAND_ERROR_IS_FATAL ANY)
