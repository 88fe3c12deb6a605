# Device code, compiled at build time into ${CMAKE_BINARY_DIR}/kernels and from there embedded.
#   engine/vulkan/shaders/NAME.comp -> vulkan/NAME.spv   by glslc or glslangValidator; and vulkan/NAME.bound.spv, which
#                                                        takes descriptors instead of addresses
#   engine/cuda/kernels/NAME.cu     -> cuda/IMAGE/NAME.cubin.gz or .ptx.gz: cmake/cuda.cmake
# A compiler that is missing is a warning: the back end then says that its kernels were not built.
set(once sh ${CMAKE_SOURCE_DIR}/cmake/once.sh) # OUTPUT FILE... -- COMMAND...
set(kernel_dir ${CMAKE_BINARY_DIR}/kernels)
set(kernel_outputs "")

file(GLOB ndk_tools ${CMAKE_ANDROID_NDK}/shader-tools/* ${ANDROID_NDK}/shader-tools/*) # Android's kit brings its own
find_program(GLSLC glslc HINTS ${ndk_tools})
find_program(GLSLANG glslangValidator)
file(GLOB shader_sources CONFIGURE_DEPENDS engine/vulkan/shaders/*.comp)
if(GLSLC)
	set(glsl_command ${GLSLC} -O --target-env=vulkan1.1)
elseif(GLSLANG)
	set(glsl_command ${GLSLANG} --quiet --target-env vulkan1.1)
else()
	message(WARNING "neither glslc nor glslangValidator found: no Vulkan kernels (apt-get install glslc)")
	set(shader_sources "")
endif()
file(GLOB shader_headers CONFIGURE_DEPENDS engine/vulkan/shaders/*.glsl)
foreach(source ${shader_sources})
	get_filename_component(name ${source} NAME_WE)
	foreach(kind "" ".bound")
		if(kind AND name MATCHES "^stage_")
			continue() # takes descriptors always
		endif()
		set(output ${kernel_dir}/vulkan/${name}${kind}.spv)
		set(define "")
		if(kind)
			set(define -DBOUND)
		endif()
		add_custom_command(OUTPUT ${output}
			COMMAND ${CMAKE_COMMAND} -E make_directory ${kernel_dir}/vulkan
			COMMAND ${once} ${output} ${source} ${shader_headers} -- ${glsl_command} ${define} ${source} -o ${output}
			DEPENDS ${source} ${shader_headers} VERBATIM)
		list(APPEND kernel_outputs ${output})
	endforeach()
endforeach()

# Modules as a user would bring them, for tests.
set(test_kernels "")
file(GLOB test_shaders CONFIGURE_DEPENDS tests/engine/vulkan/shaders/*.comp)
if(EXOGPU_TESTS AND glsl_command)
	foreach(source ${test_shaders})
		get_filename_component(name ${source} NAME_WE)
		add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/test-kernels/${name}.spv
			COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/test-kernels
			COMMAND ${glsl_command} ${source} -o ${CMAKE_BINARY_DIR}/test-kernels/${name}.spv
			DEPENDS ${source} VERBATIM)
		list(APPEND test_kernels ${CMAKE_BINARY_DIR}/test-kernels/${name}.spv)
	endforeach()
endif()
add_custom_target(test-kernels DEPENDS ${test_kernels})

if(EXOGPU_SERVER)
	include(cuda)
endif()
