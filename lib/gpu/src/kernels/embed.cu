// Token ids to vectors.
//
// ids: (tokens) u8; table: (rows, hidden) f32; starts: (sequences + 1), where each sequence begins;
// kept: (sequences) f32, what vectors are divided by, or null; out: (tokens, hidden) f32. The vectors of the token
// `masked` are 0, if it is one (fair-esm's token dropout). An id that is no row of the table becomes NaN: it would otherwise be whatever lies
// behind the table.

template <bool WHOLE>
static __device__ __forceinline__ void look_up(const unsigned char *ids, const float *table, const int *starts,
                                               const float *kept, float *out, unsigned tokens, unsigned hidden,
                                               unsigned rows, unsigned sequences, int masked,
                                               unsigned tokens_per_block) {
    const unsigned pieces = (hidden + 3) / 4;
    const unsigned first_token = blockIdx.x * tokens_per_block;
    const unsigned here = present_of(tokens_per_block, first_token, tokens);
    for (unsigned piece = threadIdx.x; piece < here * pieces; piece += blockDim.x) {
        const unsigned token = first_token + piece / pieces;
        const unsigned channel = piece % pieces * 4;
        const unsigned present = present_of(4, channel, hidden);
        const unsigned id = ids[token];
        const float share = kept ? kept[sequence_of(token, starts, sequences)] : 1.0f;
        float values[4];
        if (id < rows) {
            load<4, WHOLE>(values, table + id * hidden + channel, present);
        }
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
            const float value = id < rows ? values[i] / share : __uint_as_float(0x7fc00000u);
            values[i] = static_cast<int>(id) == masked ? 0.0f : value;
        }
        store<4, WHOLE>(values, out + static_cast<unsigned long long>(token) * hidden + channel, present);
    }
}

#define EMBED(name, whole)                                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                                                  \
        name(const unsigned char *ids, const float *table, const int *starts, const float *kept, float *out,         \
             unsigned tokens, unsigned hidden, unsigned rows, unsigned sequences, int masked,                          \
             unsigned tokens_per_block) {                                                                              \
        look_up<whole>(ids, table, starts, kept, out, tokens, hidden, rows, sequences, masked, tokens_per_block);      \
    }                                                                                                                  \
    EMULATED(name)

EMBED(embed_packets, true)
EMBED(embed_values, false)
