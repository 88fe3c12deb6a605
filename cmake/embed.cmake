# Files into the binary. As a module it defines the library `embedded`; as a script (cmake -P) it writes the C file that
# holds them: one .incbin each, and the table that common/files/embedded.c searches, sorted by name.
#
#   cmake -DOUT=embedded.c "-DROOTS=schema=DIR;migrations=DIR" -P embed.cmake
if(CMAKE_SCRIPT_MODE_FILE)
	set(names "")
	foreach(root ${ROOTS})
		string(REGEX MATCH "^([^=]*)=(.*)$" _ ${root})
		set(prefix ${CMAKE_MATCH_1})
		set(dir ${CMAKE_MATCH_2})
		file(GLOB_RECURSE files RELATIVE ${dir} ${dir}/*)
		foreach(file ${files})
			list(APPEND names "${prefix}/${file}!${dir}/${file}") # ! sorts before what a longer name goes on with
		endforeach()
	endforeach()
	list(SORT names)
	set(bytes "")
	set(table "")
	set(index 0)
	foreach(pair ${names})
		string(REGEX MATCH "^([^!]*)!(.*)$" _ ${pair})
		set(name ${CMAKE_MATCH_1})
		set(path ${CMAKE_MATCH_2})
		file(SIZE ${path} size)
		string(APPEND bytes "__asm__(\".section .rodata\\n.balign 16\\n.globl embedded_${index}\\n.hidden embedded_${index}\\n"
			"embedded_${index}:\\n"
			".incbin \\\"${path}\\\"\\n.byte 0\\n.previous\\n\");\n"
			"extern const uint8_t embedded_${index}[];\n")
		string(APPEND table "\t{\"${name}\", embedded_${index}, ${size}},\n")
		math(EXPR index "${index} + 1")
	endforeach()
	file(WRITE ${OUT} "// Written by cmake/embed.cmake.\n#include \"common/files/embedded.h\"\n"
		"extern const struct embedded_file embedded_files[];\nextern const size_t embedded_file_count;\n"
		"${bytes}const struct embedded_file embedded_files[] = {\n${table}};\n"
		"const size_t embedded_file_count = ${index};\n")
	return()
endif()

set(embed_script ${CMAKE_CURRENT_LIST_FILE})
set(embed_inputs "")
set(embed_roots "")
if(EXOGPU_SERVER)
	file(GLOB_RECURSE embed_inputs CONFIGURE_DEPENDS schema/*.json migrations/*.sql catalog/*.json)
	set(embed_roots "schema=${CMAKE_SOURCE_DIR}/schema" "migrations=${CMAKE_SOURCE_DIR}/migrations"
		"catalog=${CMAKE_SOURCE_DIR}/catalog")
endif()
if(kernel_outputs)
	list(APPEND embed_roots "kernels=${kernel_dir}")
	list(APPEND embed_inputs ${kernel_outputs})
endif()

find_program(NODE node)
find_program(NPM npm)
if(EXOGPU_SERVER AND EXOGPU_DASHBOARD AND NODE AND NPM)
	set(ui_out ${CMAKE_BINARY_DIR}/ui)
	set(ui_modules ${CMAKE_SOURCE_DIR}/ui/node_modules/.package-lock.json)
	file(GLOB_RECURSE ui_sources CONFIGURE_DEPENDS ui/src/*)
	list(APPEND ui_sources ${CMAKE_SOURCE_DIR}/ui/build.mjs)
	file(GLOB client_writers CONFIGURE_DEPENDS tools/clients/*.py)
	add_custom_command(OUTPUT ${ui_modules}
		COMMAND ${CMAKE_COMMAND} -DNPM=${NPM} -DOUT=${ui_modules} -P ${CMAKE_SOURCE_DIR}/cmake/npm.cmake
		DEPENDS ${CMAKE_SOURCE_DIR}/ui/package-lock.json
		WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}/ui COMMENT "dashboard: npm packages" VERBATIM)
	add_custom_command(OUTPUT ${ui_out}/assets.json
		COMMAND ${NODE} ui/build.mjs ${ui_out}
		DEPENDS ${ui_modules} ${ui_sources} ${client_writers} ${CMAKE_SOURCE_DIR}/schema/api.json
		WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} COMMENT "dashboard" VERBATIM)
	list(APPEND embed_roots "ui=${ui_out}")
	list(APPEND embed_inputs ${ui_out}/assets.json)
elseif(EXOGPU_SERVER AND EXOGPU_DASHBOARD)
	message(WARNING "node or npm not found: the binary is built without the dashboard (apt-get install nodejs npm)")
endif()

string(REPLACE ";" "$<SEMICOLON>" embed_roots_argument "${embed_roots}")
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/embedded.c
	COMMAND ${CMAKE_COMMAND} -DOUT=${CMAKE_BINARY_DIR}/embedded.c "-DROOTS=${embed_roots_argument}" -P ${embed_script}
	DEPENDS ${embed_inputs} ${embed_script} COMMENT "embedding files" VERBATIM)
add_library(embedded OBJECT ${CMAKE_BINARY_DIR}/embedded.c)
target_link_libraries(embedded PRIVATE exogpu_flags)
