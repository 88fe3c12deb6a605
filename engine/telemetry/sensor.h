/* Small text files with readings from the kernel (sysfs, hwmon, /proc), kept open and
 * read again from the start. A file that is missing, unreadable or of unexpected
 * content gives no reading; nothing here reports an error. If a kept file's device
 * has gone, `gone` is set once, so that its owner looks for it again. Thread: its
 * owner's. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SENSOR_PATH_BYTES = 512, SENSOR_TEXT_BYTES = 256 };

struct sensor {
	int fd;    // -1: not open
	bool gone; // was open, and its device has gone
};

void sensor_init(struct sensor *sensor);
void sensor_finish(struct sensor *sensor);
// False if there is no such file or it may not be read. What was open before is closed.
bool sensor_open(struct sensor *sensor, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool sensor_is_open(const struct sensor *sensor);
// The whole file as text with a 0 behind it; -1 if it cannot be read or does not fit. The length otherwise.
long sensor_read(struct sensor *sensor, char *text, size_t size);
// The beginning of the file, as much as fits.
bool sensor_head(struct sensor *sensor, char *text, size_t size);
// The first line, without blanks at its end; false if it is empty.
bool sensor_text(struct sensor *sensor, char *text, size_t size);
bool sensor_integer(struct sensor *sensor, int64_t *value);
// The integer times `scale`.
bool sensor_number(struct sensor *sensor, double scale, double *value);

// A file that is read once: opened, read, closed.
bool sensor_once_text(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool sensor_once_integer(int64_t *value, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool sensor_exists(const char *format, ...) __attribute__((format(printf, 1, 2)));

// A decimal integer, or a hexadecimal one behind 0x, and nothing behind it but blanks.
bool sensor_parse(const char *text, int64_t *value);

// Call `each` with the names in a folder that begin with `prefix`, in no certain order, until it returns false.
// False if the folder cannot be read.
bool sensor_list(const char *folder, const char *prefix, bool (*each)(void *context, const char *name), void *context);

// In a hwmon folder, the number N of KINDN_label that is `label` (as a whole, or its beginning if `prefix`); 0 if there
// is none. Numbers differ between cards and driver versions; labels do not.
int sensor_labelled(const char *folder, const char *kind, const char *label, bool prefix);

// A counter that only grows, turned into a rate. All zero at first.
struct rate {
	bool started;
	uint64_t count;
	int64_t at_ns;
};

// The growth per second since the last call; false the first time, when no time has passed, and when the counter went
// back. `wrap`: where it starts again from 0, or 0 if it does not.
bool rate_per_s(struct rate *rate, uint64_t count, uint64_t wrap, int64_t at_ns, double *per_s);
