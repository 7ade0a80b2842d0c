// The activation of a feed-forward block with a gate: SiLU of the gate times the values beside it.
//
// wide: (tokens, 2 width) ELEMENT, gates before values; out: (tokens, width) ELEMENT.

static __device__ __forceinline__ float silu(float x) {
    return x / (1.0f + exp2f(x * -1.44269504f)); // log2(e)
}

template <unsigned N, bool WHOLE>
static __device__ __forceinline__ void gate(const ELEMENT *wide, ELEMENT *out, unsigned tokens, unsigned width,
                                            unsigned tokens_per_block) {
    const unsigned column = (blockIdx.y * blockDim.x + threadIdx.x) * N;
    const unsigned present = present_of(N, column, width);
    if (present == 0) {
        return;
    }
    const unsigned first_token = blockIdx.x * tokens_per_block;
    const unsigned here = present_of(tokens_per_block, first_token, tokens);
    const ELEMENT *at = wide + static_cast<unsigned long long>(first_token) * 2 * width + column;
    ELEMENT *to = out + static_cast<unsigned long long>(first_token) * width + column;
    for (unsigned row = 0; row < here; ++row, at += 2ull * width, to += width) {
        float gates[N];
        float values[N];
        load<N, WHOLE>(gates, at, present);
        load<N, WHOLE>(values, at + width, present);
#pragma unroll
        for (unsigned i = 0; i < N; ++i) {
            values[i] *= silu(gates[i]);
        }
        store<N, WHOLE>(values, to, present);
    }
}

#define SILU_GATE(name, n, whole)                                                                                      \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        name(const ELEMENT *wide, ELEMENT *out, unsigned tokens, unsigned width, unsigned tokens_per_block) {          \
        gate<n, whole>(wide, out, tokens, width, tokens_per_block);                                                    \
    }                                                                                                                  \
    EMULATED(name)

SILU_GATE(silu_gate_packets, 16 / sizeof(ELEMENT), true)
SILU_GATE(silu_gate_values, 1, false)
