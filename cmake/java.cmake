# What Java calls libexogpu by (bindings/java), where there is a JDK: that of JAVA_HOME, else that of javac. CMake's own
# FindJNI wants libraries too, which nothing here is linked with, and which a JDK without a display lacks.
option(EXOGPU_JAVA "build what Java calls libexogpu by, where there is a JDK" ON)
if(ANDROID) # its kit has both headers where the compiler looks
	set(JNI_INCLUDE ${CMAKE_SOURCE_DIR}/bindings/java/jni)
	set(JNI_SYSTEM_INCLUDE ${JNI_INCLUDE})
elseif(EXOGPU_JAVA AND NOT EXOGPU_SANITIZE)
	find_program(JAVAC javac HINTS ENV JAVA_HOME PATH_SUFFIXES bin)
	if(JAVAC)
		file(REAL_PATH ${JAVAC} javac_file)
		get_filename_component(jdk_include ${javac_file}/../../include ABSOLUTE)
		find_path(JNI_INCLUDE jni.h PATHS ${jdk_include} NO_DEFAULT_PATH)
		find_path(JNI_SYSTEM_INCLUDE jni_md.h PATHS ${jdk_include}/linux NO_DEFAULT_PATH)
	endif()
endif()
if(JNI_INCLUDE AND JNI_SYSTEM_INCLUDE AND EXOGPU_JAVA AND NOT EXOGPU_SANITIZE)
	set(jni_folder ${CMAKE_SOURCE_DIR}/bindings/java/jni)
	add_library(exogpu_jni SHARED ${jni_folder}/exogpu_jni.c)
	target_include_directories(exogpu_jni SYSTEM PRIVATE ${JNI_INCLUDE} ${JNI_SYSTEM_INCLUDE})
	target_link_libraries(exogpu_jni PRIVATE exogpu_flags libexogpu)
	# Pages of 16 KiB, which Android's newer devices have. It finds libexogpu beside it.
	target_link_options(exogpu_jni PRIVATE -Wl,-z,max-page-size=16384 -Wl,-z,defs
		-Wl,--version-script=${jni_folder}/exogpu_jni.map)
	set_target_properties(exogpu_jni PROPERTIES INSTALL_RPATH $ORIGIN LINK_DEPENDS ${jni_folder}/exogpu_jni.map)
	install(TARGETS exogpu_jni LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT java)
endif()
