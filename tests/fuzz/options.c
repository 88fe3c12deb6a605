/* What all fuzz targets set of the address sanitizer. Freed memory is kept from use for a while, so that who still uses
 * it is found: 16 MiB hold all that a run frees. With the 256 MiB that it has otherwise, each allocation is of memory
 * that is in no cache, and half of the time goes into its pages. */
const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
	return "quarantine_size_mb=16:malloc_context_size=16:allocator_release_to_os_interval_ms=60000";
}
