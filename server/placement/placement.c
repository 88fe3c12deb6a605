/* See placement.h. What is asked of the search, in which order, and how its answer becomes a placement.
 *
 * A GPU computes prompts many times faster than a processor, which the time of a token does not show, and fewer pages
 * let fewer requests run at once. So processors are taken only where GPUs alone do not hold the model, or are half as
 * fast and slow besides, and fewer pages only where more do not fit or cost a tenth of the speed. */
#include "common/text/size_text.h"
#include "server/placement/placement_inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MIB = 1024 * 1024, SHARE_OF_OTHERS = 8, SHARED_BEYOND = 4, ATTEMPTS = 4, TOKEN_BYTES = 4 };

static const double fewer_pages_gain = 0.9, processors_gain = 0.5, first_share = 0.7;
static const double search_share = 0.8;    // of the time, where remedies are looked for in the rest
static const double fast_enough_s = 10e-3; // a token by GPUs alone: then processors are left alone

uint32_t placement_rows(const struct model_shape *shape, uint32_t context_tokens)
{
	if (!shape->encoder || context_tokens < PLACEMENT_BATCH_ROWS)
		return PLACEMENT_BATCH_ROWS;
	return context_tokens < STAGE_ROWS_MOST ? context_tokens : STAGE_ROWS_MOST;
}

uint32_t placement_pages(uint32_t context_tokens, uint32_t sequences)
{
	uint32_t one = (context_tokens + STAGE_PAGE_TOKENS - 1) / STAGE_PAGE_TOKENS;
	uint32_t share = (one + SHARE_OF_OTHERS - 1) / SHARE_OF_OTHERS;
	uint32_t beyond = sequences > PLACEMENT_SHARERS ? sequences - PLACEMENT_SHARERS : 0;
	return one + (sequences - beyond - 1) * share + beyond * ((share + SHARED_BEYOND - 1) / SHARED_BEYOND);
}

uint64_t placement_reserve(uint64_t memory_bytes, bool host, double headroom)
{
	uint64_t reserve = memory_bytes / (host ? 16 : 32), least = 64 * (uint64_t)MIB, most = 1024 * (uint64_t)MIB;
	const uint64_t worker = host ? least : 0;
	if (headroom >= 0)
		return (uint64_t)((double)memory_bytes * headroom) + worker;
	return (reserve < least ? least : reserve > most ? most : reserve) + worker;
}

void placement_shrink(struct model_sizes *sizes, enum tensor_format format)
{
	double before = 0, after = 0;
	for (int i = FORMAT_F32; i < FORMAT_COUNT; i++) {
		const struct format_info *from = format_info((enum tensor_format)i), *to = format_info(format);
		double bytes = (double)sizes->format_bytes[i];
		bool wide = format_is_wide((enum tensor_format)i);
		before += bytes;
		after += wide ? bytes / from->block_bytes * from->block_values / to->block_values * to->block_bytes
			      : bytes;
	}
	double scale = before > 0 && after < before ? after / before : 1;
	sizes->embedding_bytes = (uint64_t)((double)sizes->embedding_bytes * scale);
	sizes->output_bytes = (uint64_t)((double)sizes->output_bytes * scale);
	sizes->layer_bytes = (uint64_t)((double)sizes->layer_bytes * scale);
	sizes->layers_bytes = (uint64_t)((double)sizes->layers_bytes * scale);
	sizes->expert_bytes = (uint64_t)((double)sizes->expert_bytes * scale);
	sizes->main_format = scale < 1 ? format : sizes->main_format;
}

// ---- several questions, and the best of their answers ----

static bool any_gpu(const struct placement_wanted *wanted)
{
	for (unsigned i = 0; i < wanted->device_count; i++) {
		const struct placement_device *device = &wanted->devices[i];
		if (device->backend != PLACE_CPU && device->backend != PLACE_WEBGPU && !cost_unusable(wanted, i) &&
		    !device->software)
			return true;
	}
	return false;
}

// Solve one problem; a result that is better by the required margin replaces the present one.
static enum status attempt(struct solution *solution, const struct problem_params *params, double until_s)
{
	struct search_result result;
	struct problem *problem = malloc(sizeof *problem);
	const double now_s = search_clock_s();
	double limit = INFINITY;
	if (!problem)
		return STATUS_OUT_OF_MEMORY;
	problem_init(problem, params);
	if (solution->chain.count)
		limit = solution->chain.value *
			(solution->gpus_only && !params->gpus_only ? processors_gain : fewer_pages_gain);
	const enum status status = search_run(problem, limit, until_s, &result);
	if (!status) {
		solution->visited += result.visited;
		solution->proven &= result.proven;
		if (!result.proven && result.bound < solution->bound)
			solution->bound = result.bound;
		if (solution->first_s < 0 && result.best.count)
			solution->first_s = result.first_s + now_s;
		if (result.best.count) {
			solution->problem = *problem;
			solution->chain = result.best;
			solution->gpus_only = params->gpus_only;
			solution->gpus_hold |= params->gpus_only;
		}
	}
	free(problem);
	return status;
}

static enum status solve(struct solution *solution, const struct placement_wanted *wanted,
			 const struct model_sizes *sizes, double until_s)
{
	const bool gpus = any_gpu(wanted);
	const uint32_t all_pages = placement_pages(wanted->context_tokens, wanted->sequences),
		       few_pages = placement_pages(wanted->context_tokens, 1);
	enum status status = STATUS_OK;
	*solution = (struct solution){.proven = true, .bound = INFINITY, .first_s = -1};
	for (int i = 0; i < ATTEMPTS && !status; i++) {
		const bool gpus_only = i < 2, few = i % 2;
		const double now_s = search_clock_s();
		const struct problem_params params = {
			.wanted = wanted, .sizes = sizes, .pages = few ? few_pages : all_pages, .gpus_only = gpus_only};
		if ((gpus_only && !gpus) || (few && few_pages == all_pages) ||
		    (!gpus_only && solution->gpus_hold && solution->chain.value < fast_enough_s))
			continue;
		solution->asked_processors |= !gpus_only;
		status = attempt(solution, &params,
				 until_s > now_s ? now_s + (until_s - now_s) * first_share : until_s);
	}
	return status;
}

double placement_value(const struct placement_wanted *wanted, double until_s)
{
	struct solution *solution = malloc(sizeof *solution);
	struct model_sizes sizes = *wanted->sizes;
	double value = INFINITY;
	if (wanted->format != FORMAT_UNKNOWN)
		placement_shrink(&sizes, wanted->format);
	if (solution && !solve(solution, wanted, &sizes, until_s) && solution->chain.count)
		value = solution->chain.value;
	free(solution);
	return value;
}

// ---- the answer ----

static void take_stages(struct answer *answer, const struct problem *problem, const struct chain *chain)
{
	struct placement *out = answer->out;
	uint32_t first = 0;
	out->feasible = true;
	out->stage_count = chain->count;
	out->page_count = problem->pages;
	for (unsigned i = 0; i < chain->count; i++) {
		struct placement_stage *stage = &out->stages[i];
		*stage = (struct placement_stage){.device = problem->devices[chain->at[i]].index,
						  .first_layer = first,
						  .layer_count = chain->layers[i],
						  .host_layers = chain->host_layers[i],
						  .embeds = i == 0,
						  .predicts = i == chain->count - 1};
		stage->memory = cost_memory(answer->wanted, &problem->sizes, problem->pages, stage);
		stage->seconds_per_token = problem->devices[chain->at[i]].known ? chain_stage_s(problem, chain, i, 1)
										: -1;
		first += stage->layer_count;
	}
}

static void take_hop(struct answer *answer, const struct problem *problem, unsigned from, unsigned to, bool tokens)
{
	struct placement *out = answer->out;
	const struct place_device *a = &problem->devices[from], *b = &problem->devices[to];
	struct placement_hop *hop = &out->hops[out->hop_count];
	if (a->node == b->node || out->hop_count == PLACEMENT_STAGES)
		return;
	out->hop_count++;
	*hop = (struct placement_hop){.from_node = a->node,
				      .to_node = b->node,
				      .bytes_per_token = tokens ? TOKEN_BYTES : problem->hop_bytes,
				      .seconds_per_token = tokens ? cost_close_s(problem, from, to)
								  : cost_hop_s(problem, from, to, 1)};
	hop->link_class = cost_link(answer->wanted, a->node, b->node, &hop->measured).link_class;
}

void placement_take(struct answer *answer, const struct problem *problem, const struct chain *chain)
{
	struct placement *out = answer->out;
	take_stages(answer, problem, chain);
	for (unsigned i = 1; i < chain->count; i++)
		take_hop(answer, problem, chain->at[i - 1], chain->at[i], false);
	if (chain->count > 1)
		take_hop(answer, problem, chain->at[chain->count - 1], chain->at[0], true);
	out->seconds_per_token = chain_stream_s(problem, chain);
	out->tokens_per_s = 1 / chain_together_s(problem, chain);
	const double prompt_s = chain_prompt_s(problem, chain);
	out->prompt_tokens_per_s = prompt_s > 0 ? 1 / prompt_s : -1;
	for (unsigned i = 0; i < chain->count; i++)
		if (!problem->devices[chain->at[i]].known)
			out->seconds_per_token = out->tokens_per_s = -1;
}

// ---- free choice ----

static bool uses_processor(const struct placement_wanted *wanted, const struct solution *solution)
{
	for (unsigned i = 0; i < solution->chain.count; i++)
		if (wanted->devices[solution->problem.devices[solution->chain.at[i]].index].backend == PLACE_CPU)
			return true;
	return false;
}

// Smaller formats, for what does not fit, or not without processors.
static enum status try_smaller(struct answer *answer)
{
	static const enum tensor_format smaller[] = {FORMAT_Q8_0, FORMAT_Q4_0};
	const bool fits = answer->solution->chain.count;
	struct solution *other = malloc(sizeof *other);
	enum status status = other ? STATUS_OK : STATUS_OUT_OF_MEMORY;
	for (size_t i = 0; i < sizeof smaller / sizeof *smaller && !status; i++) {
		struct model_sizes sizes = answer->sizes;
		placement_shrink(&sizes, smaller[i]);
		const uint64_t saved = answer->sizes.layers_bytes - sizes.layers_bytes;
		if (!saved)
			continue;
		status = solve(other, answer->wanted, &sizes, answer->wanted->may_shrink ? answer->until_s : 0);
		if (status || !other->chain.count || (fits && uses_processor(answer->wanted, other)))
			continue;
		if (answer->wanted->may_shrink) {
			*answer->solution = *other;
			answer->sizes = sizes;
			answer->out->format = smaller[i];
			answer->out->step = STEP_SMALLER_FORMAT;
			answer->saved_bytes = saved;
		} else {
			answer->out->smaller = smaller[i];
			remedy_add(answer->out, -1,
				   "in the format %s it would fit %s: %s less; ask for that format to have it so",
				   format_info(smaller[i])->name, fits ? "the GPUs" : "the memory there is",
				   SIZE_TEXT(saved));
		}
		break;
	}
	free(other);
	return status;
}

static void say_steps(struct answer *answer)
{
	struct placement *out = answer->out;
	const struct placement_wanted *wanted = answer->wanted;
	if (out->step == STEP_NONE && uses_processor(wanted, answer->solution) && any_gpu(wanted) &&
	    !answer->solution->gpus_hold)
		out->step = STEP_CPU;
	for (unsigned i = 0; i < out->stage_count; i++) {
		const struct placement_stage *stage = &out->stages[i];
		if (!stage->host_layers)
			continue;
		out->step = out->step == STEP_NONE ? STEP_SPILLED : out->step;
		why_add(out, (int)stage->device,
			"%u of its %u layers (%s) stay%s in host memory, which is slower: %s has only %s free",
			stage->host_layers, stage->layer_count, SIZE_TEXT(stage->memory.host_bytes),
			stage->host_layers == 1 ? "s" : "", wanted->devices[stage->device].name,
			SIZE_TEXT(wanted->devices[stage->device].free_bytes));
	}
	if (out->step == STEP_SMALLER_FORMAT)
		why_add(out, -1, "weights are held in %s, which takes %s less; answers differ a little",
			format_info(out->format)->name, SIZE_TEXT(answer->saved_bytes));
	if (out->step == STEP_CPU)
		why_add(out, -1, "it does not fit the usable GPUs, so processors compute, too");
	if (out->page_count < placement_pages(wanted->context_tokens, wanted->sequences))
		why_add(out, -1,
			"the KV cache has room for %u tokens, one request's context: further requests wait when it is "
			"full",
			out->page_count * STAGE_PAGE_TOKENS);
}

// Say what exactly is proven: that no other solution of the solved problems is better by the required margin.
static void say_proof(struct answer *answer, const struct problem *all)
{
	const struct placement_wanted *wanted = answer->wanted;
	const struct solution *solution = answer->solution;
	bool processors = false, fewer = answer->out->page_count > placement_pages(wanted->context_tokens, 1);
	for (unsigned i = 0; i < all->count; i++)
		processors |= wanted->devices[all->devices[i].index].backend == PLACE_CPU;
	if (answer->out->proof != PROOF_OPTIMAL || all->count < 2)
		return;
	why_add(answer->out, -1, "proven: no other chain of %s is faster%s%s",
		solution->gpus_only && processors ? "GPUs alone" : "the devices that can be used",
		!solution->gpus_only || !processors ? ""
		: solution->asked_processors        ? "; no chain with processors takes less than half the time"
					     : "; processors were not searched, since a token takes less than 10 ms",
		fewer ? "; with a KV cache for one request only, no chain saves more than 10 % of the time" : "");
}

// The same chain, among all devices that can be used.
static bool chain_among(const struct problem *all, const struct problem *problem, const struct chain *chain,
			struct chain *out)
{
	*out = *chain;
	for (unsigned i = 0; i < chain->count; i++) {
		unsigned at = 0;
		while (at < all->count && all->devices[at].index != problem->devices[chain->at[i]].index)
			at++;
		if (at == all->count)
			return false;
		out->at[i] = at;
	}
	return true;
}

// Scores, reasons and remedies.
static enum status explain(struct answer *answer)
{
	struct placement *out = answer->out;
	const struct placement_wanted *wanted = answer->wanted;
	struct chain chain;
	const struct problem_params params = {.wanted = wanted,
					      .sizes = &answer->sizes,
					      .pages = out->feasible ? out->page_count
								     : placement_pages(wanted->context_tokens, 1)};
	struct problem *all = malloc(sizeof *all);
	if (!all)
		return STATUS_OUT_OF_MEMORY;
	problem_init(all, &params);
	for (unsigned i = 0; i < all->count; i++)
		cost_score(all, i, all, &out->scores[all->devices[i].index]);
	if (!out->feasible && !wanted->pin_count) {
		why_infeasible(out, all, answer->end_s);
		if (wanted->remedies && out->proof == PROOF_INFEASIBLE)
			remedies_infeasible(out, all, answer->end_s);
	} else if (wanted->pin_count && out->feasible) {
		why_add(out, -1, "the devices are those that were asked for");
		say_steps(answer);
	} else if (out->feasible && chain_among(all, &answer->solution->problem, &answer->solution->chain, &chain)) {
		why_placed(out, all, &chain);
		say_steps(answer);
		say_proof(answer, all);
		why_left_out(out, all, &chain, answer->end_s);
		if (wanted->remedies)
			remedies_find(out, all, &chain, answer->end_s);
	}
	why_assumed(out, wanted, &answer->sizes);
	free(all);
	return STATUS_OK;
}

void placement_set_proof(struct placement *out, double bound_s)
{
	out->bound_s = bound_s < out->value_s ? bound_s : INFINITY;
	out->proof = isinf(out->bound_s) ? PROOF_OPTIMAL : PROOF_BOUND;
	out->gap = out->proof == PROOF_BOUND ? 1 - bound_s / out->value_s : 0;
}

static enum status place_free(struct answer *answer)
{
	struct placement *out = answer->out;
	struct solution *solution = answer->solution;
	enum status status = solve(solution, answer->wanted, &answer->sizes, answer->until_s);
	if (!status && (!solution->chain.count ||
			(uses_processor(answer->wanted, solution) && any_gpu(answer->wanted) && !solution->gpus_hold)))
		status = try_smaller(answer);
	if (status)
		return status;
	out->visited = solution->visited;
	out->first_ms = solution->first_s < 0 ? 0 : (solution->first_s - answer->begun_s) * 1e3;
	out->bound_s = INFINITY;
	if (!solution->chain.count) {
		out->proof = solution->proven ? PROOF_INFEASIBLE : PROOF_NOT_FOUND;
		return STATUS_OK;
	}
	placement_take(answer, &solution->problem, &solution->chain);
	out->value_s = solution->chain.value;
	placement_set_proof(out, solution->proven ? INFINITY : solution->bound);
	return STATUS_OK;
}

enum status placement_find_listed(struct placement *out, const struct placement_wanted *wanted, struct error *error)
{
	struct answer answer = {.wanted = wanted, .out = out, .sizes = *wanted->sizes, .begun_s = search_clock_s()};
	enum status status = STATUS_OK;
	answer.until_s = answer.begun_s + wanted->timeout_s * (wanted->remedies ? search_share : 1);
	answer.end_s = answer.begun_s + wanted->timeout_s;
	memset(out, 0, sizeof *out);
	out->format = wanted->format;
	out->strategy = "pipeline";
	out->seconds_per_token = out->tokens_per_s = out->prompt_tokens_per_s = -1;
	for (unsigned i = 0; i < PLACEMENT_DEVICES; i++)
		out->scores[i].total = -1;
	if (wanted->format != FORMAT_UNKNOWN)
		placement_shrink(&answer.sizes, wanted->format);
	if (!wanted->device_count) {
		error_set(error, STATUS_UNAVAILABLE, "there is no device that can run models");
		error_hint(error, "start the server without --no-local-node, or let a node join: exogpu node");
		return STATUS_UNAVAILABLE;
	}
	answer.solution = malloc(sizeof *answer.solution);
	if (!answer.solution)
		status = STATUS_OUT_OF_MEMORY;
	else
		status = wanted->pin_count ? placement_place_pinned(&answer, error) : place_free(&answer);
	out->search_ms = (search_clock_s() - answer.begun_s) * 1e3;
	if (!status)
		status = explain(&answer);
	if (status == STATUS_OUT_OF_MEMORY)
		error_set(error, status, "the server is out of memory");
	free(answer.solution);
	return status;
}
