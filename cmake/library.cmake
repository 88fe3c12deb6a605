# libexogpu: the engine without the node and the worker, for other programs: libexogpu.so.0, its headers, and exogpu.pc.
# libexogpu_client, for programs that use the devices of a cluster: the command line's connection to a server. It is a
# library of its own because it needs libwebsockets and OpenSSL, and libexogpu needs neither.
#
# The wrapper's own sources lie directly in engine/; what they need of the back ends comes out of the archives. Only what
# the headers mark as public is exported. `cmake --install BUILD --component library` installs it.
include(GNUInstallDirs)
file(GLOB library_sources CONFIGURE_DEPENDS engine/*.c)
add_library(libexogpu SHARED ${library_sources})
set(EXOGPU_SOVERSION 0) # of the symbols too, in libexogpu.map; what it promises is engine/include/exogpu-0.abi
set_target_properties(libexogpu PROPERTIES OUTPUT_NAME exogpu VERSION ${PROJECT_VERSION} SOVERSION ${EXOGPU_SOVERSION}
	LINK_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/libexogpu.map)
target_link_libraries(libexogpu PRIVATE engine embedded)
# Pages of 16 KiB, which Android's newer devices have.
target_link_options(libexogpu PRIVATE -Wl,--as-needed -Wl,--gc-sections -Wl,-z,max-page-size=16384
	-Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/libexogpu.map)
if(NOT EXOGPU_SANITIZE)
	target_link_options(libexogpu PRIVATE -Wl,-z,defs) # nothing that only a program brings along
endif()

if(EXOGPU_SERVER)
	file(GLOB client_sources CONFIGURE_DEPENDS bindings/c/*.c)
	add_library(libexogpu_client SHARED ${client_sources})
	set_target_properties(libexogpu_client PROPERTIES OUTPUT_NAME exogpu_client VERSION ${PROJECT_VERSION}
		SOVERSION ${EXOGPU_SOVERSION} LINK_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/libexogpu.map)
	target_link_libraries(libexogpu_client PRIVATE server)
	get_target_property(library_options libexogpu LINK_OPTIONS)
	target_link_options(libexogpu_client PRIVATE ${library_options})
endif()

file(RELATIVE_PATH EXOGPU_PC_UP ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
set(pc_of_exogpu "memory and compute of a device, the same for a CPU, a Vulkan GPU and an NVIDIA GPU")
set(pc_of_exogpu_client "memory and compute of the devices of a cluster, over the network")
foreach(name exogpu exogpu_client)
	set(EXOGPU_PC_NAME ${name})
	set(EXOGPU_PC_WORDS ${pc_of_${name}})
	configure_file(${CMAKE_CURRENT_LIST_DIR}/exogpu.pc.in ${name}.pc @ONLY)
endforeach()
if(NOT EXOGPU_SERVER) # what is installed is the program's and libexogpu_client's, too
	return()
endif()
set(library_headers ${CMAKE_INSTALL_INCLUDEDIR}/exogpu-0)
install(TARGETS libexogpu libexogpu_client LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(DIRECTORY engine/include/exogpu DESTINATION ${library_headers} COMPONENT library)
install(FILES common/base/status.h DESTINATION ${library_headers}/common/base COMPONENT library)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/exogpu.pc ${CMAKE_CURRENT_BINARY_DIR}/exogpu_client.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
