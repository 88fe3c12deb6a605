# The head of ${PTX} says compute capability 9.0, where a compiler wrote that of an older one.
file(READ ${PTX} text)
set(version 7.8)
if(text MATCHES "cp[.]async[.]bulk")
	set(version 8.0)
endif()
string(REGEX REPLACE "\\.version 7\\.[0-7]\n" ".version ${version}\n" text "${text}")
string(REGEX REPLACE "\\.target sm_8[0-9]" ".target sm_90" text "${text}")
file(WRITE ${PTX} "${text}")
