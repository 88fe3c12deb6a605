/* The inner loops of stages between products with matrices: the gates of feed-forward networks, the gated delta rule,
 * attention. Included by stage_loops.h, which says what it is made with. */
// e to the x, to about one part in 10^7: 2 to the whole part by the exponent, the rest by a polynomial (Taylor's, which
// on half a unit to each side is as good). Below -87 it is e to the -87, that is next to nothing.
INLINE floats exponential(floats x)
{
	const float log2_e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
	const float least = -87, largest = 88;
	x = choose(x > least, x, least - (floats){0});
	x = choose(x < largest, x, largest - (floats){0});
	const float shift = 12582912; // 1.5 * 2^23: adding it rounds to a whole number
	floats whole = x * log2_e + shift;
	ints exponent = (ints)whole - 0x4b400000;
	whole -= shift;
	floats rest = x - whole * ln2_high - whole * ln2_low;
	floats sum = 1.f / 5040 - (floats){0};
	sum = sum * rest + 1.f / 720;
	sum = sum * rest + 1.f / 120;
	sum = sum * rest + 1.f / 24;
	sum = sum * rest + 1.f / 6;
	sum = sum * rest + 0.5f;
	sum = sum * rest + 1;
	sum = sum * rest + 1;
	return sum * (floats)((exponent + 127) << 23);
}

static void delta(const struct delta_row *row)
{
	const uint32_t keys = row->key_size, values = row->value_size;
	const float decay = row->decay;
	float *restrict state = row->state, *restrict out = row->out, change[LIMIT_MODEL_HEAD_SIZE] = {0};
	for (uint32_t i = 0; i < keys; i++, state += values) {
		const float key = row->key[i];
		for (uint32_t j = 0; j < values; j++)
			change[j] += state[j] * key;
	}
	for (uint32_t j = 0; j < values; j++) {
		change[j] = (row->values[j] - decay * change[j]) * row->beta;
		out[j] = 0;
	}
	state = row->state;
	for (uint32_t i = 0; i < keys; i++, state += values) {
		const float key = row->key[i], query = row->query[i];
		for (uint32_t j = 0; j < values; j++) {
			state[j] = decay * state[j] + key * change[j];
			out[j] += state[j] * query;
		}
	}
}

static void silu(float *gate, const float *up, size_t n)
{
	for (size_t i = 0; i < n; i += WIDTH) {
		floats x = load_floats(gate + i);
		x = x / (1 + exponential(-x)) * load_floats(up + i);
		memcpy(gate + i, &x, sizeof(x));
	}
}

// x / 2 (1 + tanh(u)) is x / (1 + e^(-2 u)), with u = sqrt(2 / pi) (x + 0.044715 x^3) (Hendrycks and Gimpel, 2016).
static void gelu(float *gate, const float *up, size_t n)
{
	for (size_t i = 0; i < n; i += WIDTH) {
		floats x = load_floats(gate + i), u = 1.5957691216f * x * (1 + 0.044715f * x * x);
		x = x / (1 + exponential(-u)) * load_floats(up + i);
		memcpy(gate + i, &x, sizeof(x));
	}
}

static void clamped(float *gate, const float *up, size_t n)
{
	const floats limit = 7 - (floats){0};
	for (size_t i = 0; i < n; i += WIDTH) {
		floats x = load_floats(gate + i), u = load_floats(up + i);
		x = choose(x > limit, limit, x); // NaN stays NaN
		u = choose(u > limit, limit, u);
		u = choose(u < -limit, -limit, u);
		x = x / (1 + exponential(-1.702f * x)) * (u + 1);
		memcpy(gate + i, &x, sizeof(x));
	}
}

// Registers hold sums of so many queries, by so many vectors of values: of one query the sums would wait for each
// other.
enum { TOKENS = STAGE_PAGE_TOKENS, TOKEN_VECTORS = TOKENS / WIDTH, QUERIES_MOST = WIDTH == 16 ? 8 : 4 };
_Static_assert(ATTENTION_QUERIES % QUERIES_MOST == 0, "queries are taken so many at a time");

INLINE unsigned value_vectors(unsigned queries)
{
	return (WIDTH == 16 ? 16u : 8u) / (queries > 4 ? 8u : queries > 2 ? 4u : queries > 1 ? 2u : 1u);
}

// The products of `count` queries with the keys of a page. The values are fetched meanwhile: they have as many lines.
INLINE void score_page(const struct attention *attention, const struct attention_query *queries, unsigned count,
		       const uint8_t *page, float scores[QUERIES_MOST][TOKENS])
{
	const uint8_t *values = page + attention->values_offset;
	floats sums[QUERIES_MOST][TOKEN_VECTORS];
	const float *q[QUERIES_MOST];
	memset(sums, 0, sizeof(sums));
	for (unsigned i = 0; i < count; i++)
		q[i] = queries[i].q;
	for (uint32_t i = 0; i < attention->head_size; i++, page += 2 * TOKENS, values += 2 * TOKENS) {
		__builtin_prefetch(values);
		UNROLL(8)
		for (unsigned j = 0; j < TOKEN_VECTORS; j++) {
			floats key = halves_to_floats(page + 2 * WIDTH * j);
			UNROLL(8)
			for (unsigned query = 0; query < count; query++)
				sums[query][j] += q[query][i] * key;
		}
	}
	for (unsigned query = 0; query < count; query++)
		for (unsigned j = 0; j < TOKEN_VECTORS; j++) {
			sums[query][j] *= attention->scale;
			memcpy(scores[query] + WIDTH * j, &sums[query][j], sizeof(floats));
		}
}

// The same where keys lie as values do.
INLINE void score_latents(const struct attention *attention, const struct attention_query *queries, unsigned count,
			  const uint8_t *page, float scores[QUERIES_MOST][TOKENS])
{
	const uint32_t size = attention->head_size, whole = size / WIDTH * WIDTH;
	for (unsigned token = 0; token < TOKENS; token++, page += 2 * (size_t)size) {
		floats sums[QUERIES_MOST];
		memset(sums, 0, sizeof(sums));
		for (uint32_t i = 0; i < whole; i += WIDTH) {
			floats key = halves_to_floats(page + 2 * i);
			UNROLL(8)
			for (unsigned query = 0; query < count; query++)
				sums[query] += load_floats(queries[query].q + i) * key;
		}
		for (unsigned query = 0; query < count; query++) {
			float sum = sum_floats(sums[query]);
			for (uint32_t i = whole; i < size; i++) {
				uint16_t half;
				memcpy(&half, page + 2 * i, sizeof(half));
				sum += queries[query].q[i] * f16_to_f32(half);
			}
			scores[query][token] = sum * attention->scale;
		}
	}
}

// Gemma 2's: c tanh(x / c), as c - 2 c / (e^(2 x / c) + 1).
INLINE void cap_scores(float *scores, float cap)
{
	for (unsigned i = 0; i < TOKENS; i += WIDTH) {
		floats x = load_floats(scores + i);
		x = cap - 2 * cap / (exponential(x * (2 / cap)) + 1);
		memcpy(scores + i, &x, sizeof(x));
	}
}

// Turn products into weights, and rescale the earlier sums to the new largest product.
INLINE void weigh(const struct attention_query *query, uint32_t value_size, uint32_t tokens, float *scores,
		  floats *totals)
{
	for (uint32_t i = tokens; i < TOKENS; i++)
		scores[i] = tokens ? scores[0] : 0; // padding: the weights become zero
	if (!tokens)
		return;
	floats largest = load_floats(scores);
	for (unsigned i = WIDTH; i < TOKENS; i += WIDTH)
		largest = choose(load_floats(scores + i) > largest, load_floats(scores + i), largest);
	float most = *query->most;
	if (any_lane(largest > most)) {
		float its = largest_float(largest), shrink = expf(most - its);
		for (uint32_t i = 0; i < value_size; i++)
			query->out[i] *= shrink;
		*totals *= shrink;
		*query->most = most = its;
	}
	for (unsigned i = 0; i < TOKENS; i += WIDTH) {
		floats weights = exponential(load_floats(scores + i) - most);
		memcpy(scores + i, &weights, sizeof(weights));
	}
	for (uint32_t i = tokens; i < TOKENS; i++)
		scores[i] = 0;
	for (unsigned i = 0; i < TOKENS; i += WIDTH)
		*totals += load_floats(scores + i);
}

// Add tokens [first, end) of a page to `vectors` vectors of each query's sums, from column `at` on.
INLINE void add_columns(const struct attention *attention, const struct attention_query *queries, unsigned count,
			const uint8_t *values, uint32_t at, unsigned vectors, uint32_t first, uint32_t end,
			float weights[QUERIES_MOST][TOKENS], const uint8_t *following)
{
	floats sums[QUERIES_MOST][16];
	for (unsigned query = 0; query < count; query++)
		UNROLL(16)
	for (unsigned j = 0; j < vectors; j++)
		sums[query][j] = load_floats(queries[query].out + at + WIDTH * j);
	for (uint32_t token = first; token < end; token++) {
		const uint8_t *from = values + 2 * ((size_t)token * attention->head_size + at);
		const uint8_t *ahead = following + 2 * (TOKENS * (size_t)at + token * vectors * WIDTH);
		UNROLL(16)
		for (unsigned j = 0; j < vectors; j++) {
			floats value = halves_to_floats(from + 2 * WIDTH * j);
			if (j * WIDTH % 32 == 0)
				__builtin_prefetch(ahead + 2 * WIDTH * j);
			UNROLL(8)
			for (unsigned query = 0; query < count; query++)
				sums[query][j] += weights[query][token] * value;
		}
	}
	for (unsigned query = 0; query < count; query++)
		UNROLL(16)
	for (unsigned j = 0; j < vectors; j++)
		memcpy(queries[query].out + at + WIDTH * j, &sums[query][j], sizeof(floats));
}

// Add the values of tokens [first, end) of a page. The keys that follow are fetched meanwhile.
INLINE void add_values(const struct attention *attention, const struct attention_query *queries, unsigned count,
		       const uint8_t *values, uint32_t first, uint32_t end, float weights[QUERIES_MOST][TOKENS],
		       const uint8_t *following)
{
	const unsigned vectors = value_vectors(count);
	uint32_t size = attention->value_size, i = 0;
	for (; i + vectors * WIDTH <= size; i += vectors * WIDTH)
		add_columns(attention, queries, count, values, i, vectors, first, end, weights, following);
	for (; i + WIDTH <= size; i += WIDTH)
		add_columns(attention, queries, count, values, i, 1, first, end, weights, following);
	for (; i < size; i++)
		for (unsigned query = 0; query < count; query++)
			for (uint32_t token = first; token < end; token++) {
				uint16_t half;
				memcpy(&half, values + 2 * ((size_t)token * attention->head_size + i), sizeof(half));
				queries[query].out[i] += weights[query][token] * f16_to_f32(half);
			}
}

INLINE void attend_queries(const struct attention *attention, const struct attention_query *queries, unsigned count)
{
	float scores[QUERIES_MOST][TOKENS];
	floats totals[QUERIES_MOST];
	uint32_t end = 0, at = UINT32_MAX;
	memset(totals, 0, sizeof(totals));
	for (unsigned i = 0; i < count; i++) {
		*queries[i].most = -INFINITY;
		memset(queries[i].out, 0, attention->value_size * sizeof(float));
		end = queries[i].end > end ? queries[i].end : end;
		at = queries[i].begin < at ? queries[i].begin : at;
	}
	at = at / TOKENS * TOKENS; // pages that none of them sees are passed over
	for (at = at > attention->first ? at : attention->first; at < end; at += TOKENS) {
		const uint32_t *number = &attention->pages[at / TOKENS];
		const uint8_t *page = attention->kv + attention->page_bytes * number[0];
		const uint8_t *values = page + attention->values_offset, *following = page;
		uint32_t shared = TOKENS;
		if (end - at > TOKENS)
			following = attention->kv + attention->page_bytes * number[1];
		if (attention->latents)
			score_latents(attention, queries, count, page, scores);
		else
			score_page(attention, queries, count, page, scores);
		uint32_t tokens[QUERIES_MOST];
		for (unsigned i = 0; i < count; i++) {
			tokens[i] = queries[i].end > at ? queries[i].end - at : 0;
			tokens[i] = tokens[i] < TOKENS ? tokens[i] : TOKENS;
			uint32_t unseen = queries[i].begin > at ? queries[i].begin - at : 0;
			tokens[i] = unseen < tokens[i] ? tokens[i] : 0;
			shared = tokens[i] < shared ? tokens[i] : shared;
			if (attention->cap > 0)
				cap_scores(scores[i], attention->cap);
			for (uint32_t j = 0; j < unseen && tokens[i]; j++)
				scores[i][j] = -INFINITY;
			weigh(&queries[i], attention->value_size, tokens[i], scores[i], &totals[i]);
		}
		add_values(attention, queries, count, values, 0, shared, scores, following);
		for (unsigned i = 0; i < count && shared < TOKENS; i++) // what not all of them see
			if (tokens[i] > shared)
				add_values(attention, queries + i, 1, values, shared, tokens[i], &scores[i], page);
	}
	for (unsigned i = 0; i < count; i++)
		*queries[i].total = sum_floats(totals[i]);
}

static void attend(const struct attention *attention)
{
	for (unsigned first = 0; first < attention->count; first += QUERIES_MOST) {
		const struct attention_query *queries = attention->queries + first;
		switch (attention->count - first) {
		case 1:
			attend_queries(attention, queries, 1);
			break;
		case 2:
			attend_queries(attention, queries, 2);
			break;
		case 3:
			attend_queries(attention, queries, 3);
			break;
#if WIDTH == 16
		case 4:
			attend_queries(attention, queries, 4);
			break;
		case 5:
			attend_queries(attention, queries, 5);
			break;
		case 6:
			attend_queries(attention, queries, 6);
			break;
		case 7:
			attend_queries(attention, queries, 7);
			break;
#endif
		default:
			attend_queries(attention, queries, QUERIES_MOST);
		}
	}
}
