/* See clock.h. Dates are computed here (proleptic Gregorian calendar) and not by the C library: this needs no locale,
 * no time zone and no lock. */
#include "common/base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static int64_t read_clock(clockid_t id)
{
	struct timespec now;
	clock_gettime(id, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t clock_steady_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

int64_t clock_steady_ms(void)
{
	return clock_steady_ns() / 1000000;
}

int64_t clock_wall_ns(void)
{
	return read_clock(CLOCK_REALTIME);
}

int64_t clock_wall_ms(void)
{
	return clock_wall_ns() / 1000000;
}

// Days since 1970-01-01 of a civil date; the year is taken to begin in March, so that the leap day is its last.
static int64_t days_from_civil(int64_t year, int month, int day)
{
	year -= month <= 2;
	int64_t era = (year >= 0 ? year : year - 399) / 400;
	int64_t year_of_era = year - era * 400;
	int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
	return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

static void civil_from_days(int64_t days, int64_t *year, int *month, int *day)
{
	days += 719468;
	int64_t era = (days >= 0 ? days : days - 146096) / 146097;
	int64_t day_of_era = days - era * 146097;
	int64_t year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
	int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
	int month_from_march = (int)((5 * day_of_year + 2) / 153);
	*day = (int)(day_of_year - (153 * month_from_march + 2) / 5 + 1);
	*month = month_from_march < 10 ? month_from_march + 3 : month_from_march - 9;
	*year = year_of_era + era * 400 + (*month <= 2);
}

char *clock_format(int64_t wall_ms, char text[CLOCK_TEXT_BYTES])
{
	const int64_t last = 253402300799999; // 9999-12-31T23:59:59.999Z
	if (wall_ms < 0)
		wall_ms = 0;
	if (wall_ms > last)
		wall_ms = last;
	int64_t year;
	int month, day;
	civil_from_days(wall_ms / 86400000, &year, &month, &day);
	int64_t ms = wall_ms % 86400000;
	unsigned hour = (unsigned)(ms / 3600000), minute = (unsigned)(ms / 60000 % 60),
		 second = (unsigned)(ms / 1000 % 60);
	snprintf(text, CLOCK_TEXT_BYTES, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ", (unsigned)year % 10000u,
		 (unsigned)month % 100u, (unsigned)day % 100u, hour % 100u, minute % 100u, second % 100u,
		 (unsigned)(ms % 1000));
	return text;
}

// Exactly `count` digits at *at, which moves past them; -1 if they are not there.
static int digits(const char **at, int count)
{
	int value = 0;
	for (int i = 0; i < count; i++, (*at)++) {
		if (**at < '0' || **at > '9')
			return -1;
		value = value * 10 + (**at - '0');
	}
	return value;
}

static bool literal(const char **at, char wanted)
{
	if (**at != wanted)
		return false;
	(*at)++;
	return true;
}

// "Z" or "+hh:mm" or "-hh:mm" and then the end, in minutes east of UTC.
static bool offset(const char **at, int *minutes)
{
	*minutes = 0;
	if (**at == 'Z' || **at == 'z')
		return *++*at == 0;
	if (**at != '+' && **at != '-')
		return false;
	int sign = *(*at)++ == '-' ? -1 : 1;
	int hour = digits(at, 2);
	bool colon = hour >= 0 && literal(at, ':');
	int minute = colon ? digits(at, 2) : -1;
	*minutes = sign * (hour * 60 + minute);
	return hour >= 0 && hour < 24 && minute >= 0 && minute < 60 && **at == 0;
}

static bool leap(int year)
{
	return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

enum status clock_parse(const char *text, int64_t *wall_ms)
{
	static const int month_days[12] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
	const char *at = text;
	int year, month, day, hour, minute, second, east;
	if ((year = digits(&at, 4)) < 1970 || !literal(&at, '-') || (month = digits(&at, 2)) < 1 || month > 12 ||
	    !literal(&at, '-') || (day = digits(&at, 2)) < 1 || day > month_days[month - 1] ||
	    (month == 2 && day == 29 && !leap(year)) || (*at != 'T' && *at != 't' && *at != ' '))
		return STATUS_INVALID_PARAMS;
	at++;
	if ((hour = digits(&at, 2)) < 0 || hour > 23 || !literal(&at, ':') || (minute = digits(&at, 2)) < 0 ||
	    minute > 59 || !literal(&at, ':') || (second = digits(&at, 2)) < 0 || second > 60)
		return STATUS_INVALID_PARAMS;
	int ms = 0, scale = 100;
	if (*at == '.') {
		at++;
		if (*at < '0' || *at > '9')
			return STATUS_INVALID_PARAMS;
		for (; *at >= '0' && *at <= '9'; at++, scale /= 10)
			ms += (*at - '0') * scale;
	}
	if (!offset(&at, &east))
		return STATUS_INVALID_PARAMS;
	*wall_ms = ((days_from_civil(year, month, day) * 24 + hour) * 60 + minute - east) * 60000 + second * 1000 + ms;
	return STATUS_OK;
}
