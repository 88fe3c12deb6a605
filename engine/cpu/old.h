/* See old.c. */
#pragma once
#include "engine/backend.h"

enum status old_cpu_open(struct old_device **out, const char *hardware_key, struct error *error);
void old_cpu_buffer_destroy(struct old_device *device, struct old_buffer **buffer);
void old_cpu_close(struct old_device **device);
void old_cpu_limits(const struct old_device *device, struct old_limits *limits);
enum status old_cpu_buffer_create(struct old_device *device, struct old_buffer **out, uint64_t bytes,
				  struct error *error);
enum status old_cpu_write(struct old_device *device, struct old_buffer *to, const void *from, uint64_t bytes,
			  struct error *error);
enum status old_cpu_copy(struct old_device *device, struct old_buffer *to, struct old_buffer *from, uint64_t bytes,
			 struct error *error);
enum status old_cpu_read(struct old_device *device, void *to, struct old_buffer *from, uint64_t bytes,
			 struct error *error);
enum status old_cpu_launch(struct old_device *device, const struct old_launch *launch, int64_t *device_ns,
			   struct error *error);
