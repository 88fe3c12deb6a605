# What is installed beside libexogpu, and the Debian packages of both, by CPack: `./dev package`.
#
#   exogpu         (component program)  the binary with the dashboard, the systemd units, /etc/default/exogpu, documents
#   libexogpu-dev  (component library)  the library, its headers and exogpu.pc, as cmake/library.cmake installs them
#
# `cmake --install BUILD --component program` installs the first without a package; the units and /etc are for packages
# alone, since they name /usr/bin/exogpu. Dependencies are read from the binaries by dpkg-shlibdeps.
set(doc_dir ${CMAKE_INSTALL_DATADIR}/doc/exogpu)
install(TARGETS exogpu RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
install(FILES README.md LICENSE DESTINATION ${doc_dir} COMPONENT program)
install(DIRECTORY docs/ DESTINATION ${doc_dir} COMPONENT program FILES_MATCHING PATTERN "*.md" PATTERN images EXCLUDE)
if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr")
	return()
endif()

set(EXOGPU_MAINTAINER "exogpu <exogpu@localhost>" CACHE STRING "who builds the packages: NAME <ADDRESS>")
find_program(GZIP gzip REQUIRED)
set(packaging ${CMAKE_SOURCE_DIR}/packaging)
# The system is part of the version: packages for several lie side by side, and a newer system's is newer.
cmake_host_system_information(RESULT system QUERY DISTRIB_ID DISTRIB_VERSION_ID)
list(JOIN system "" system)
set(package_release 1${system})
set(package_version ${PROJECT_VERSION}-${package_release})
foreach(unit exogpu exogpu-node)
	install(FILES ${packaging}/systemd/${unit}.service DESTINATION lib/systemd/system COMPONENT program)
	install(FILES ${packaging}/systemd/restrictions.conf DESTINATION lib/systemd/system/${unit}.service.d
		COMPONENT program)
endforeach()
install(FILES ${packaging}/debian/default DESTINATION /etc/default RENAME exogpu COMPONENT program)

# gzipped(FILE NAME FOLDER COMPONENT): installed compressed, without the time of day, as Debian has its documents.
function(gzipped file name folder component)
	set(output ${CMAKE_BINARY_DIR}/package/${component}/${name})
	get_filename_component(output_folder ${output} DIRECTORY)
	file(MAKE_DIRECTORY ${output_folder})
	execute_process(COMMAND ${GZIP} -9nc ${file} OUTPUT_FILE ${output} COMMAND_ERROR_IS_FATAL ANY)
	install(FILES ${output} DESTINATION ${folder} COMPONENT ${component})
endfunction()
string(TIMESTAMP package_date "%a, %d %b %Y %H:%M:%S +0000" UTC) # SOURCE_DATE_EPOCH, where it is set
foreach(pair program=exogpu library=libexogpu-dev)
	string(REGEX MATCH "^([^=]*)=(.*)$" _ ${pair})
	set(component ${CMAKE_MATCH_1})
	set(package_name ${CMAKE_MATCH_2})
	set(folder ${CMAKE_INSTALL_DATADIR}/doc/${package_name})
	configure_file(${packaging}/debian/changelog.in package/${component}/changelog @ONLY)
	gzipped(${CMAKE_BINARY_DIR}/package/${component}/changelog changelog.Debian.gz ${folder} ${component})
	gzipped(${CMAKE_SOURCE_DIR}/CHANGELOG.md changelog.gz ${folder} ${component})
	install(FILES ${packaging}/debian/copyright DESTINATION ${folder} COMPONENT ${component})
endforeach()
# The same program for the tarball (tools/package/tarball.py). It looks for libraries in lib/ beside its own folder first,
# for those that its libraries need, too, which only the older of the two tags for it does.
add_executable(exogpu_portable server/main.c)
target_link_libraries(exogpu_portable PRIVATE server engine embedded)
target_link_options(exogpu_portable PRIVATE -Wl,--disable-new-dtags)
set_target_properties(exogpu_portable PROPERTIES OUTPUT_NAME exogpu RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/portable
	BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/../lib")

# What others have made of it, under which licences, and the bill of materials.
if(ui_out)
	set(third_party ${CMAKE_BINARY_DIR}/third-party)
	set(third_party_script ${CMAKE_SOURCE_DIR}/tools/package/third_party.py)
	file(GLOB third_party_table CONFIGURE_DEPENDS ${packaging}/third-party/*)
	string(TIMESTAMP package_epoch "%s" UTC)
	set(third_party_programs $<TARGET_FILE:exogpu> $<TARGET_FILE:libexogpu> $<TARGET_FILE:libexogpu_client>)
	add_custom_command(OUTPUT ${third_party}/LICENSES-THIRD-PARTY ${third_party}/exogpu.cdx.json
		COMMAND ${CMAKE_COMMAND} -E env SOURCE_DATE_EPOCH=${package_epoch} ${PYTHON} -B ${third_party_script} --ui ${ui_out}
			--version ${PROJECT_VERSION} --sysroot "${CMAKE_SYSROOT}/" --out ${third_party} ${third_party_programs}
		DEPENDS exogpu libexogpu libexogpu_client ${third_party_script} ${third_party_table} ${CMAKE_SOURCE_DIR}/ui/package-lock.json
		COMMENT "licences and bill of materials" VERBATIM)
	add_custom_target(third-party ALL DEPENDS ${third_party}/LICENSES-THIRD-PARTY)
	install(FILES ${third_party}/LICENSES-THIRD-PARTY ${third_party}/exogpu.cdx.json DESTINATION ${doc_dir} COMPONENT program)
	install(FILES ${third_party}/LICENSES-THIRD-PARTY DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libexogpu-dev COMPONENT library)
endif()
gzipped(${packaging}/exogpu.1 exogpu.1.gz ${CMAKE_INSTALL_MANDIR}/man1 program)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME exogpu)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "${EXOGPU_MAINTAINER}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR})
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL program library)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
	OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${package_release})
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(CMAKE_CROSSCOMPILING) # what they need is told by tools/package/depends.py then
	set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
	set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)
endif()
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME exogpu)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_DEPENDS "passwd")
# Loaded when it runs, so that a machine without a GPU needs neither.
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "libvulkan1, mesa-vulkan-drivers")
# For who keeps the tables in PostgreSQL: loaded when asked for.
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SUGGESTS "libpq5")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "every GPU that you own, as one machine
A server that lends memory and compute of this machine's CPU and GPUs, and of
other machines' that join it, by token; with a dashboard, an audit log and the
systemd units exogpu.service and exogpu-node.service.")
set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONTROL_EXTRA ${packaging}/debian/conffiles ${packaging}/debian/postinst
	${packaging}/debian/prerm ${packaging}/debian/postrm)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libexogpu-dev)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS "libvulkan1")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "memory and compute of a device, as a library in C
libexogpu: one interface to the CPU, Vulkan and NVIDIA GPUs of this machine;
with its headers and exogpu.pc.")
include(CPack)
