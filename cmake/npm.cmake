# The dashboard's npm packages as the lock file says, without those for development: cmake -DNPM=npm -DOUT=FILE -P npm.cmake
#
# Nothing is done where node_modules/.lock.sha256 names this lock already: each build folder asks, but the packages lie
# in the source folder, and `./dev test` may have installed more there (it writes the same file).
file(SHA256 package-lock.json lock)
set(installed "")
if(EXISTS node_modules/.lock.sha256)
	file(STRINGS node_modules/.lock.sha256 installed)
endif()
if(NOT installed STREQUAL lock)
	execute_process(COMMAND ${NPM} ci --omit=dev --no-audit --no-fund --loglevel=error RESULT_VARIABLE status)
	if(status)
		message(FATAL_ERROR "npm ci failed in ui/")
	endif()
	file(WRITE node_modules/.lock.sha256 "${lock}\n")
endif()
file(TOUCH ${OUT})
