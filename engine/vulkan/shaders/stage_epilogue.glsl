// Stores an element of a product: row `row` of the batch, column n of the output.
const uint STORE = 0, ADD = 1, GATE = 2, PAIR = 3; // GATE: the gate's product is in `also`; PAIR: both are at hand
layout(constant_id = 2) const uint EPILOGUE_AND_GATE = STORE; // with four times enum model_gate
const uint EPILOGUE = EPILOGUE_AND_GATE % 4, MODEL_GATE = EPILOGUE_AND_GATE / 4, GELU = 1, CLAMPED = 3;
TO { float to[]; };
ALSO { float also[]; };
layout(std430, set = 0, binding = 3) readonly buffer Biases { float biases[]; };

// at: where the bias of the first of the elements is, or NO_VECTOR.
float biased(uint at, uint n, float value)
{
	return at == NO_VECTOR ? value : value + biases[at + n];
}

float gated(float gate, float value)
{
	float u = gate;
	if (MODEL_GATE == GELU)
		u = 1.5957691216 * gate * (1 + 0.044715 * gate * gate); // x / 2 (1 + tanh(u / 2))
	if (MODEL_GATE == CLAMPED) {
		gate = gate > 7 ? 7 : gate; // NaN stays NaN
		u = 1.702 * gate;
		value = (value > 7 ? 7 : value < -7 ? -7 : value) + 1;
	}
	return gate / (1 + exp(-max(u, -80.0))) * value; // avoids infinities, about which drivers promise nothing
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
