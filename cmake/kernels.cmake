# Device code, compiled at build time into ${CMAKE_BINARY_DIR}/kernels and from there embedded.
#   engine/vulkan/shaders/NAME.comp -> vulkan/NAME.spv   by glslc or glslangValidator; and vulkan/NAME.bound.spv, which
#                                                        takes descriptors instead of addresses
#   engine/cuda/kernels/NAME.cu     -> cuda/NAME.ptx     by nvcc, else clang (no toolkit needed), for sm_80 and later
# A compiler that is missing is a warning: the back end then says that its kernels were not built.
set(once sh ${CMAKE_SOURCE_DIR}/cmake/once.sh) # OUTPUT FILE... -- COMMAND...
set(kernel_dir ${CMAKE_BINARY_DIR}/kernels)
set(kernel_outputs "")

find_program(GLSLC glslc)
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

find_program(NVCC nvcc HINTS /usr/local/cuda/bin)
find_program(CLANG NAMES clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14)
file(GLOB cuda_sources CONFIGURE_DEPENDS engine/cuda/kernels/*.cu)
file(GLOB cuda_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/engine/cuda/kernels/*.cuh
	${CMAKE_SOURCE_DIR}/engine/cuda/kernels/*.h)
if(NVCC)
	set(cuda_command ${NVCC} -ptx -O3 -arch=compute_80)
	set(cuda_hopper_command ${NVCC} -ptx -O3 -arch=compute_90)
elseif(CLANG)
	set(cuda_command ${CLANG} --cuda-path=/nonexistent -x cuda -nocudainc -nocudalib --cuda-device-only
		--cuda-gpu-arch=sm_80 -Xclang -target-feature -Xclang +ptx75 -O3 -S)
	set(cuda_hopper_command ${cuda_command})
else()
	message(WARNING "neither nvcc nor clang found: no CUDA kernels (apt-get install clang)")
	set(cuda_sources "")
endif()
foreach(source ${cuda_sources})
	get_filename_component(name ${source} NAME_WE)
	if(name MATCHES "^stage_wide_") # of compute capability 9.0 alone; clang 14 has no wgmma
		if(NVCC)
			add_custom_command(OUTPUT ${kernel_dir}/cuda/${name}.ptx
				COMMAND ${CMAKE_COMMAND} -E make_directory ${kernel_dir}/cuda
				COMMAND ${once} ${kernel_dir}/cuda/${name}.ptx ${source} ${cuda_headers} --
					${NVCC} -ptx -O3 -arch=compute_90a -I${CMAKE_SOURCE_DIR} -DHOPPER ${source}
					-o ${kernel_dir}/cuda/${name}.ptx
				DEPENDS ${source} ${cuda_headers} VERBATIM)
			list(APPEND kernel_outputs ${kernel_dir}/cuda/${name}.ptx)
		endif()
		continue()
	endif()
	add_custom_command(OUTPUT ${kernel_dir}/cuda/${name}.ptx
		COMMAND ${CMAKE_COMMAND} -E make_directory ${kernel_dir}/cuda
		COMMAND ${once} ${kernel_dir}/cuda/${name}.ptx ${source} ${cuda_headers} --
			${cuda_command} -I${CMAKE_SOURCE_DIR} ${source} -o ${kernel_dir}/cuda/${name}.ptx
		DEPENDS ${source} ${cuda_headers} VERBATIM)
	list(APPEND kernel_outputs ${kernel_dir}/cuda/${name}.ptx)
	if(name MATCHES "^stage_")
		# Again, with what compute capability 9.0 has. clang 14 does not know that target, but only the head of what it
		# writes says so.
		add_custom_command(OUTPUT ${kernel_dir}/cuda/${name}.hopper.ptx
			COMMAND ${CMAKE_COMMAND} -E make_directory ${kernel_dir}/cuda
			COMMAND ${once} ${kernel_dir}/cuda/${name}.hopper.ptx ${source} ${cuda_headers} --
				${cuda_hopper_command} -I${CMAKE_SOURCE_DIR} -DHOPPER ${source}
				-o ${kernel_dir}/cuda/${name}.hopper.ptx
			COMMAND ${CMAKE_COMMAND} -DPTX=${kernel_dir}/cuda/${name}.hopper.ptx
				-P ${CMAKE_SOURCE_DIR}/cmake/hopper.cmake
			DEPENDS ${source} ${cuda_headers} ${CMAKE_SOURCE_DIR}/cmake/hopper.cmake VERBATIM)
		list(APPEND kernel_outputs ${kernel_dir}/cuda/${name}.hopper.ptx)
	endif()
endforeach()
