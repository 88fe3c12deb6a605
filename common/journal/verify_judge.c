/* See verify.h: findings that are known only after the whole log was read. */
#include "common/journal/verify_inside.h"

#include <inttypes.h>
#include <string.h>

// Signatures.

// The number of the segment whose key has signed the note, or -1.
static int64_t signed_by(const struct journal_verifier *verifier, const char *note)
{
	for (size_t i = 0; i < verifier->segment_count; i++)
		if (note_check(note, &verifier->segments[i].key, NULL))
			return (int64_t)verifier->segments[i].number;
	return -1;
}

static void judge_unproven(struct journal_verifier *verifier)
{
	for (size_t i = 0; i < verifier->unproven_count; i++) {
		const struct unproven *unproven = &verifier->unproven[i];
		int64_t number = signed_by(verifier, unproven->note);
		if (number >= 0)
			find(verifier, WRONG_KEY, unproven->seq, "%s is signed by the key of segment %" PRId64,
			     unproven->what, number);
		else
			find(verifier, BAD_SIGNATURE, unproven->seq, "%s has no good signature", unproven->what);
	}
}

// Whether a key that could sign a head of this size has: that of the segment which it ends in, or, between two, either.
static bool signed_in_its_time(const struct journal_verifier *verifier, const struct memory *memory)
{
	uint64_t size = memory->checkpoint.size;
	for (size_t i = 0; i < verifier->segment_count; i++)
		if (verifier->segments[i].first <= size &&
		    (i + 1 == verifier->segment_count || size <= verifier->segments[i + 1].first) &&
		    note_check(memory->note, &verifier->segments[i].key, NULL))
			return true;
	return false;
}

// The text about a head that differs from this log: a key of this log has signed it, or it is only somebody's word.
static const char *signed_text(const struct journal_verifier *verifier, const struct memory *memory)
{
	return signed_by(verifier, memory->note) >= 0 ? ", signed by this log's key" : ", not signed by any key of it";
}

static void judge_memory(struct journal_verifier *verifier, struct memory *memory)
{
	uint64_t size = memory->checkpoint.size;
	memory->state = JOURNAL_MEMORY_DIFFERS;
	if (strcmp(memory->checkpoint.origin, verifier->report.origin) != 0) {
		find(verifier, FORKED, 0, "%s remembers the log %s; this is another one, %s", memory->who,
		     memory->checkpoint.origin, verifier->report.origin);
	} else if (memory->compared && !memory->same) {
		find(verifier, FORKED, size,
		     "%s remembers other entries before entry %" PRIu64 " than there are here%s", memory->who, size,
		     signed_text(verifier, memory));
	} else if (size > verifier->tree.size && !verifier->part) {
		memory->state = JOURNAL_MEMORY_LONGER;
		find(verifier, TRUNCATED, verifier->tree.size,
		     "%s remembers %" PRIu64 " entries; here are %" PRIu64
		     ": the log was cut, or an older copy of it was put back%s",
		     memory->who, size, verifier->tree.size, signed_text(verifier, memory));
	} else if (!memory->compared) {
		memory->state = JOURNAL_MEMORY_UNREACHED; // for a reason that is a finding already
	} else if (!signed_in_its_time(verifier, memory)) {
		memory->state = JOURNAL_MEMORY_UNSIGNED;
		if (signed_by(verifier, memory->note) >= 0)
			find(verifier, WRONG_KEY, size, "what %s remembers is signed by the key of another range",
			     memory->who);
		else
			find(verifier, BAD_SIGNATURE, size, "what %s remembers is not signed by this log's key",
			     memory->who);
	} else {
		memory->state = JOURNAL_MEMORY_AGREES;
		if (size > verifier->report.witnessed)
			verifier->report.witnessed = size;
	}
}

// ---- entries of the log about itself ----

// An entry that no head covers gives no leave; where the heads cannot be compared, that is a finding itself.
static bool was_told(const struct journal_verifier *verifier, const struct known_segment *segment)
{
	return segment->pruned && (segment->pruned_by < verifier->signed_size || verifier->lost);
}

static bool lacks_leave(const struct journal_verifier *verifier, const struct known_segment *segment)
{
	return segment->bare && !verifier->bare_expected &&
	       (!was_told(verifier, segment) || segment->bare > segment->pruned);
}

bool journal_lacks_leave(const struct journal_verifier *verifier)
{
	for (size_t i = 0; i < verifier->segment_count; i++)
		if (lacks_leave(verifier, &verifier->segments[i]))
			return true;
	return false;
}

// Entries that are here by their hashes alone, and not by the log's own leave.
static void judge_bare(struct journal_verifier *verifier, const struct known_segment *segment)
{
	if (!lacks_leave(verifier, segment))
		return;
	verifier->report.bare += segment->bare;
	if (was_told(verifier, segment))
		find(verifier, MODIFIED, segment->first_bare,
		     "of segment %" PRIu64 " %" PRIu64 " entries are here by their hashes alone, but entry %" PRIu64
		     " tells that %" PRIu64 " were pruned",
		     segment->number, segment->bare, segment->pruned_by, segment->pruned);
	else if (verifier->part || verifier->unread > segment->first)
		find(verifier, ARCHIVE_MISSING, segment->first_bare,
		     "of segment %" PRIu64 " %" PRIu64 " entries are here by their hashes alone; whether they were "
		     "pruned may be told by a later part of the log, which is not here",
		     segment->number, segment->bare);
	else
		find(verifier, MODIFIED, segment->first_bare,
		     "of segment %" PRIu64 " %" PRIu64 " entries are here by their hashes alone, and no signed entry "
		     "tells that they were pruned",
		     segment->number, segment->bare);
}

static void judge_refusals(struct journal_verifier *verifier)
{
	for (size_t i = 0; i < verifier->refusal_count; i++) {
		const struct refusal *refusal = &verifier->refusals[i];
		const char *since = verifier->part
					    ? "; whether it has signed since a later part may tell, which is not here"
					    : ", and it has not signed since";
		if (refusal->node_id[0] && refusal->held > refusal->shown)
			find(verifier, FORKED, refusal->seq,
			     "entry %" PRIu64 " tells that node %s held %" PRIu64 " entries when this log had %" PRIu64
			     ": it was cut, or put back from an older copy, and went on from there%s",
			     refusal->seq, refusal->node_id, refusal->held, refusal->shown, since);
		else if (refusal->node_id[0])
			find(verifier, FORKED, refusal->seq,
			     "entry %" PRIu64 " tells that node %s holds another log and refused to sign this one%s",
			     refusal->seq, refusal->node_id, since);
	}
}

// The end.

static void judge_tail(struct journal_verifier *verifier)
{
	struct journal_report *report = &verifier->report;
	uint64_t size = verifier->tree.size;
	if (!verifier->segment_count && !report->entries)
		find(verifier, TRUNCATED, 0, "there is no log: not even its first key");
	else if (!verifier->heads && size > report->newest_first)
		find(verifier, BAD_SIGNATURE, report->newest_first,
		     "entries %" PRIu64 " to %" PRIu64 " have no signed head: there is none of segment %" PRIu64,
		     report->newest_first, size - 1, report->newest_segment);
	else if (!verifier->lost && size > verifier->signed_size)
		find(verifier, UNSIGNED_TAIL, verifier->signed_size,
		     "entries %" PRIu64 " to %" PRIu64 " are not signed, as the server would have signed them",
		     verifier->signed_size, size - 1);
}

const struct journal_report *journal_verify_end(struct journal_verifier *verifier)
{
	if (verifier->ended)
		return &verifier->report;
	verifier->ended = true;
	judge_unproven(verifier);
	judge_tail(verifier);
	for (size_t i = 0; i < verifier->segment_count; i++)
		judge_bare(verifier, &verifier->segments[i]);
	judge_refusals(verifier);
	for (size_t i = 0; i < verifier->memory_count; i++)
		judge_memory(verifier, &verifier->memories[i]);
	tree_root(&verifier->tree, &verifier->report.root);
	return &verifier->report;
}

enum journal_memory_state journal_memory_state(const struct journal_verifier *verifier, size_t index)
{
	return index < verifier->memory_count ? verifier->memories[index].state : JOURNAL_MEMORY_UNREACHED;
}

enum journal_verdict journal_verdict_of(const struct journal_report *report)
{
	return report->verdict;
}

void journal_limits_print(const struct journal_report *report, struct buffer *text)
{
	uint64_t rest = report->witnessed > report->newest_first ? report->witnessed : report->newest_first;
	buffer_printf(
		text,
		"Without being noticed, somebody who can write the log's files and has its current key could have "
		"changed, removed or added entries from %" PRIu64 " on",
		rest);
	if (report->witnessed)
		buffer_printf(text,
			      ", or removed all that follow the first %" PRIu64
			      ". Those are confirmed by what somebody else keeps.",
			      report->witnessed);
	else
		buffer_append_text(text, ", or replaced the log by an older copy of it: nothing that somebody else "
					 "keeps was compared with it.");
	if (!report->witnessed && !report->first_key_given)
		buffer_append_text(text, " It could even be a different log: its first key was not compared with a "
					 "copy that is kept elsewhere.");
	if (report->pruned)
		buffer_printf(text,
			      " Of %" PRIu64
			      " entries only the hashes are kept, and %s; what they said cannot be read here any more.",
			      report->pruned,
			      report->bare ? "for some of them no entry of the log says why"
					   : "signed entries of the log tell when and by which rule");
}
