/* Judges a link by its class. One reading a second counts. After BAD readings in a row below
 * the class's figures a link is degraded, after GOOD readings above them it is well again;
 * after BAD reports in a row that it is down, that is published too. Links without a
 * measurement are not judged, nor are those inside one machine: a slow one only means that the
 * machine is busy, which other readings show. A path is as good as the worse of its two ends,
 * each of which knows the class of its own interface: a wired node that talks to a node on
 * Wi-Fi has a Wi-Fi link. A wire's nominal rate includes overhead, so only the share USABLE is
 * required. A gigabit link reaches that (0.94 of it is payload) even if a burst is too short
 * for the full rate. */
#include "common/base/clock.h"
#include "server/cluster/topology/topology_inside.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BAD = 3, GOOD = 5, COUNT_MS = 1000 };
static const double USABLE = 0.8;

static const struct {
	const char *name, *words;
	double rtt_ms, bits_per_s;
} classes[] = {
#define X(id, word, in_words, rtt, bits) [id] = {word, in_words, rtt, bits},
	LINK_CLASS_LIST(X)
#undef X
};

const char *link_class_name(enum link_class class)
{
	return classes[class].name;
}

const char *link_class_words(enum link_class class)
{
	return classes[class].words;
}

enum link_class link_class_parse(const char *name)
{
	for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
		if (!strcmp(classes[i].name, name))
			return (enum link_class)i;
	return LINK_CLASS_UNKNOWN;
}

enum link_class topology_class(const struct topology_from *from, const struct topology_link *link)
{
	const struct topology_link *back = link->to ? topology_link(link->to, from->node) : NULL;
	const enum link_class here = link->class, there = back && back->heard && back->up ? back->class : here;
	if (here == LINK_CLASS_UNKNOWN || there == LINK_CLASS_UNKNOWN)
		return here == LINK_CLASS_UNKNOWN ? there : here;
	if (classes[there].rtt_ms != classes[here].rtt_ms)
		return classes[there].rtt_ms > classes[here].rtt_ms ? there : here;
	return classes[there].bits_per_s < classes[here].bits_per_s ? there : here;
}

char *topology_figure(double value, char text[16])
{
	snprintf(text, 16, value < 999.5 ? "%.3g" : "%.0f", fmin(value, 1e12));
	return text;
}

// The fault of the newest reading; false: every measured figure is good.
static bool find_fault(const struct topology_from *from, const struct topology_link *link, char *reason, size_t size)
{
	const enum link_class class = topology_class(from, link);
	const double rtt_ms = classes[class].rtt_ms, bits_per_s = classes[class].bits_per_s;
	const double bytes_per_s = link->values[LINK_THROUGHPUT], interface_bits = link->values[LINK_INTERFACE_BITS];
	const char *words = classes[class].words;
	if (rtt_ms > 0 && link->values[LINK_RTT_MS] > rtt_ms) {
		char took[16];
		snprintf(reason, size, "a round trip takes %s ms; over %s it should take less than %.0f",
			 topology_figure(link->values[LINK_RTT_MS], took), words, rtt_ms);
		return true;
	}
	if (bits_per_s <= 0 || bytes_per_s < 0 || bytes_per_s * 8 >= bits_per_s * USABLE)
		return false;
	int length = snprintf(reason, size, "it gives %.3g Mbit/s, and %s should give %.0f", bytes_per_s * 8e-6, words,
			      bits_per_s * 1e-6);
	if (interface_bits > 0 && interface_bits < bits_per_s && length > 0 && (size_t)length < size)
		snprintf(reason + length, size - (size_t)length, "; its interface runs at %.0f Mbit/s",
			 interface_bits * 1e-6);
	return true;
}

double link_late_s(const struct topology_from *from, const struct topology_link *link, double bytes_per_s,
		   uint64_t bytes)
{
	const enum link_class class = topology_class(from, link);
	const double rtt_ms = classes[class].rtt_ms, least_bytes_per_s = classes[class].bits_per_s * USABLE / 8;
	double late_s = 0;
	if (rtt_ms > 0 && link->values[LINK_RTT_MS] > rtt_ms)
		late_s += (link->values[LINK_RTT_MS] - rtt_ms) / 2000;
	if (bytes_per_s > 0 && bytes_per_s < least_bytes_per_s)
		late_s += (double)bytes / bytes_per_s - (double)bytes / least_bytes_per_s;
	return late_s;
}

static void note(struct topology_news *news, enum link_news kind, const struct topology_from *from,
		 const struct topology_link *link)
{
	if (!news->count[kind]++)
		news->first[kind] = (size_t)(link - from->links);
}

// A way between two nodes that went down is told from one end: whether the other has said so already.
static bool told_by_other_end(const struct topology_from *from, const struct topology_link *link)
{
	const struct topology_link *back = link->to ? topology_link(link->to, from->node) : NULL;
	return back && back->lost;
}

static void judge_presence(const struct topology_from *from, struct topology_link *link, struct topology_news *news)
{
	const bool gone = link->to && !link->to->link; // that is told of the node
	link->downs = link->up || gone ? 0 : link->downs + 1;
	if (link->up && link->lost) {
		link->lost = false;
		note(news, LINK_BACK, from, link);
	}
	// One that was never up since its node came is not lost: it is not there yet.
	if (link->downs == BAD && link->good + link->bad > 0 && !link->lost && !told_by_other_end(from, link)) {
		link->lost = true;
		note(news, LINK_LOST, from, link);
	}
}

void topology_judge(const struct topology_from *from, struct topology_link *link, struct topology_news *news)
{
	char reason[sizeof link->degraded_reason] = "";
	const int64_t now_ms = clock_steady_ms();
	if (link->counted_ms && now_ms - link->counted_ms < COUNT_MS)
		return;
	link->counted_ms = now_ms;
	judge_presence(from, link, news);
	if (!link->up)
		return;
	const bool bad = find_fault(from, link, reason, sizeof reason);
	link->bad = bad ? link->bad + 1 : 0;
	link->good = bad ? 0 : link->good + 1;
	if (bad && link->degraded && strcmp(link->degraded_reason, reason) != 0)
		memcpy(link->degraded_reason, reason, sizeof reason); // the figures that it says are the newest
	if (!link->degraded && link->bad >= BAD) {
		link->degraded = link->changed = true;
		memcpy(link->degraded_reason, reason, sizeof reason);
		note(news, LINK_DEGRADED, from, link);
	} else if (link->degraded && link->good >= GOOD) {
		link->degraded = false;
		link->changed = true;
		link->degraded_reason[0] = 0;
		note(news, LINK_RECOVERED, from, link);
	}
}

void topology_tell_news(struct topology *topology, const struct topology_from *from, const struct topology_news *news)
{
	static const struct {
		const char *kind, *level, *one, *many;
	} words[LINK_NEWS] = {
		[LINK_DEGRADED] = {"link.degraded", "attention", "is slower than it should be",
				   "are slower than they should be"},
		[LINK_RECOVERED] = {"link.recovered", "info", "is as it should be again",
				    "are as they should be again"},
		[LINK_LOST] = {"link.down", "attention", "is down", "are down"},
		[LINK_BACK] = {"link.up", "info", "is up again", "are up again"},
	};
	for (int i = 0; i < LINK_NEWS; i++) {
		if (!news->count[i])
			continue;
		const struct topology_link *link = &from->links[news->first[i]];
		struct change change = {.kind = words[i].kind, .level = words[i].level, .keep = true};
		const char *name = topology_node_name(link->to);
		const char *why = i == LINK_DEGRADED ? link->degraded_reason : i == LINK_LOST ? link->reason : "";
		if (news->count[i] == 1)
			snprintf(change.summary, sizeof change.summary, "its link to %.64s %s%s%.140s", name,
				 words[i].one, why[0] ? ": " : "", why);
		else
			snprintf(change.summary, sizeof change.summary, "its links to %.64s and %u other%s %s%s%.120s",
				 name, news->count[i] - 1, news->count[i] == 2 ? "" : "s", words[i].many,
				 why[0] ? ": " : "", why);
		cluster_note(topology->params.cluster, from->node, &change);
	}
}
