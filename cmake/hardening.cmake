# What this compiler has against memory errors that get past the tests: hardening_flags and fortify_level are set, and
# programs are linked as position independent. tests/packaging/hardening.py reads the result from the binary.
include(CheckCCompilerFlag)
include(CheckCSourceCompiles)
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)

set(hardening_flags "")
foreach(flag -fstack-clash-protection -fcf-protection -mbranch-protection=standard)
	string(MAKE_C_IDENTIFIER has${flag} variable)
	check_c_compiler_flag("-Werror ${flag}" ${variable})
	if(${variable})
		list(APPEND hardening_flags ${flag})
	endif()
endforeach()

# The C library's headers complain of a level that the compiler cannot do.
set(CMAKE_REQUIRED_FLAGS "-O2 -Werror -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3")
check_c_source_compiles("#include <string.h>\nint main(void) { return 0; }" has_fortify_3)
unset(CMAKE_REQUIRED_FLAGS)
set(fortify_level 2)
if(has_fortify_3)
	set(fortify_level 3)
endif()
