// What becomes of a product's element: row `row` of the batch, column n of the output.
const uint STORE = 0, ADD = 1, GATE = 2, PAIR = 3; // GATE: the gate's product is in `also`; PAIR: both are at hand
layout(constant_id = 2) const uint EPILOGUE = STORE;
TO { float to[]; };
ALSO { float also[]; };

float gated(float gate, float value)
{
	return gate / (1 + exp(-gate)) * value;
}

// columns: of the output; to_groups: of its places, where it has them.
void finish(uint row, uint n, float value, uint columns, uint to_groups)
{
	uint at = row * to_groups * 32 + place(n, to_groups);
	if (EPILOGUE == STORE) {
		to[row * columns + n] = value;
	} else if (EPILOGUE == ADD) {
		to[at] += value;
	} else {
		to[at] = EPILOGUE == PAIR ? value : gated(also[row * columns + n], value);
	}
}
