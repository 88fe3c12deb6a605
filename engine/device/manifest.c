/* See manifest.h. The search order is that of the loader's documentation (LoaderDriverInterface.md). */
#include "engine/device/manifest.h"

#include "common/json/json.h"
#include "engine/device/host.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MANIFEST_BYTES = 64 * 1024 };

static void add_path(struct manifest_paths *paths, const char *folder, size_t length, const char *suffix)
{
	if (!length || paths->count == MANIFEST_PATHS)
		return;
	char *path = paths->paths[paths->count];
	int wrote = snprintf(path, MANIFEST_PATH_BYTES, "%.*s%s", (int)length, folder, suffix);
	if (wrote < 0 || wrote >= MANIFEST_PATH_BYTES)
		return; // longer than we watch
	for (size_t i = 0; i < paths->count; i++)
		if (!strcmp(paths->paths[i], path))
			return;
	paths->count++;
}

// Each entry of a colon-separated list.
static void add_list(struct manifest_paths *paths, const char *list, const char *suffix)
{
	while (list && *list) {
		size_t length = strcspn(list, ":");
		add_path(paths, list, length, suffix);
		list += length + (list[length] == ':');
	}
}

static const char *variable(const char *name, const char *fallback)
{
	const char *value = getenv(name);
	return value && *value ? value : fallback;
}

void manifest_find_paths(struct manifest_paths *paths)
{
	static const char suffix[] = "/vulkan/icd.d";
	*paths = (struct manifest_paths){0};
	const char *files = variable("VK_DRIVER_FILES", variable("VK_ICD_FILENAMES", NULL));
	if (files) {
		paths->files = true;
		add_list(paths, files, "");
		return;
	}
	const char *home = variable("HOME", NULL);
	add_list(paths, variable("XDG_CONFIG_HOME", NULL), suffix);
	if (home && !getenv("XDG_CONFIG_HOME"))
		add_path(paths, home, strlen(home), "/.config/vulkan/icd.d");
	add_list(paths, variable("XDG_CONFIG_DIRS", "/etc/xdg"), suffix);
	add_list(paths, "/etc", suffix);
	add_list(paths, variable("XDG_DATA_HOME", NULL), suffix);
	if (home && !getenv("XDG_DATA_HOME"))
		add_path(paths, home, strlen(home), "/.local/share/vulkan/icd.d");
	add_list(paths, variable("XDG_DATA_DIRS", "/usr/local/share:/usr/share"), suffix);
	add_list(paths, variable("VK_ADD_DRIVER_FILES", NULL), "");
}

static void report_broken(struct found *found, const char *path, const char *file, const char *reason)
{
	const char *name = strrchr(path, '/');
	struct library_info *library = found_add_library(found);
	if (!library)
		return;
	snprintf(library->name, sizeof(library->name), "Vulkan driver: %.40s", name ? name + 1 : path);
	text_copy(library->file, sizeof(library->file), file);
	library->state = LIBRARY_BROKEN;
	text_copy(library->reason, sizeof(library->reason), reason);
	snprintf(library->hint, sizeof(library->hint), "install the driver's package again, or remove %.160s", path);
}

// A library that the loader has open costs nothing to check; another one is opened and closed again.
static void check_manifest(struct found *found, const char *path)
{
	static char text[MANIFEST_BYTES];
	struct json *json = NULL;
	struct error error = {0};
	char file[512];
	if (!host_read_file(path, text, sizeof(text)))
		return;
	if (json_parse(&json, text, strlen(text), &error)) {
		report_broken(found, path, path, error.message);
		return;
	}
	const char *library = json_get_string(json_get(json, "ICD"), "library_path", "");
	const char *slash = strrchr(path, '/');
	if (strchr(library, '/') && library[0] != '/') // relative to the manifest
		snprintf(file, sizeof(file), "%.*s/%s", (int)(slash ? slash - path : 0), path, library);
	else
		text_copy(file, sizeof(file), library);
	void *handle = dlopen(file, RTLD_NOLOAD | RTLD_LAZY);
	if (!handle)
		handle = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
	const char *reason = handle ? NULL : dlerror();
	if (handle)
		dlclose(handle);
	else if (!reason ||
		 !strstr(reason, "wrong ELF class")) // a 32-bit driver beside the 64-bit one is as it should be
		report_broken(found, path, file, reason);
	json_destroy(&json);
}

static void check_folder(struct found *found, const char *folder)
{
	DIR *entries = opendir(folder);
	struct dirent *entry;
	while (entries && (entry = readdir(entries))) {
		char path[MANIFEST_PATH_BYTES + 256];
		size_t length = strlen(entry->d_name);
		if (length < 6 || strcmp(entry->d_name + length - 5, ".json"))
			continue;
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		check_manifest(found, path);
	}
	if (entries)
		closedir(entries);
}

void manifest_report(struct found *found)
{
	struct manifest_paths paths;
	manifest_find_paths(&paths);
	for (size_t i = 0; i < paths.count; i++) {
		size_t length = strlen(paths.paths[i]);
		if (length > 5 && !strcmp(paths.paths[i] + length - 5, ".json"))
			check_manifest(found, paths.paths[i]);
		else
			check_folder(found, paths.paths[i]);
	}
}
