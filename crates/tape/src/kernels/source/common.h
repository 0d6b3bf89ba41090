// Definitions for all kernels, in the common subset of the three languages. No function takes a
// pointer, because pointers have address spaces in Metal.
#define ROW (GROUP * SIMDS + SIMD)
// Four elements per thread, interleaved over the threads of the group.
#define EACH(i, n) for (uint k_ = 0u, i = GROUP * THREADS * 4u + THREAD; k_ < 4u && i < n; k_++, i += THREADS)
// Four f32 elements as a vector.
#define SINGLE4(p, i) (*(GLOBAL const float4*)(&(p)[i]))
// Four consecutive elements per thread, read as one word: `n` and the offsets are multiples of 4.
#define FOURS(i, n) const uint i = (GROUP * THREADS + THREAD) * 4u; if (i < n)
// Evaluates `of` for each component `v` of `a`; the second form also has the component `g` of `b`.
#define BY_FOUR(a, of) { { const float v = a.x; a.x = of; } { const float v = a.y; a.y = of; } { const float v = a.z; a.z = of; } { const float v = a.w; a.w = of; } }
#define BY_FOUR_PAIRS(a, b, of) { { const float v = a.x, g = b.x; a.x = of; } { const float v = a.y, g = b.y; a.y = of; } { const float v = a.z, g = b.z; a.z = of; } { const float v = a.w, g = b.w; a.w = of; } }
#define SUM4(a) ((a.x + a.y) + (a.z + a.w))
#define NONE4 FLOAT4(0.0f, 0.0f, 0.0f, 0.0f)
// Words of four elements that a thread holds in registers.
#define KEPT 8u
// The shape of a copy between layouts. Element by element, `read` and `write` are the steps of each
// axis in the tensor that is read and in the one that is written. Of the axis `padded`, only the
// coordinates from `before` on, `inside` of them, are read; the others are zero. 6 means none.
struct CopyShape { uint sizes[6]; uint read[6]; uint write[6]; uint axes; uint padded; uint before; uint inside; };
// The sum of `v` over the group; `s` is shared memory with one value per simdgroup. All threads
// must take part.
#define GROUP_SUM(v, s) do { const float sum_ = simd_sum(v); if (LANE == 0u) s[SIMD] = sum_; BARRIER; v = 0.0f; for (uint k_ = 0u; k_ < SIMDS; k_++) v += s[k_]; BARRIER; } while (0)
#define GROUP_MAX(v, s) do { const float max_ = simd_max(v); if (LANE == 0u) s[SIMD] = max_; BARRIER; v = s[0]; for (uint k_ = 1u; k_ < SIMDS; k_++) v = max(v, s[k_]); BARRIER; } while (0)
INLINE float bf16_to_float(ushort v) { return as_float(uint(v) << 16); }
INLINE ushort float_to_bf16(float v) {
    const uint u = as_uint(v);
    if ((u & 0x7fffffffu) > 0x7f800000u) return ushort((u >> 16) | 0x40u);
    return ushort((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
#ifndef HAS_BF16_BY_FOUR
INLINE float4 bf16_to_float4(ushort4 v) { return FLOAT4(bf16_to_float(v.x), bf16_to_float(v.y), bf16_to_float(v.z), bf16_to_float(v.w)); }
INLINE ushort4 float_to_bf164(float4 v) { return USHORT4(float_to_bf16(v.x), float_to_bf16(v.y), float_to_bf16(v.z), float_to_bf16(v.w)); }
#endif
INLINE float4 half_to_float4(ushort4 v) { return FLOAT4(half_to_float(v.x), half_to_float(v.y), half_to_float(v.z), half_to_float(v.w)); }
INLINE ushort4 float_to_half4(float4 v) { return USHORT4(float_to_half(v.x), float_to_half(v.y), float_to_half(v.z), float_to_half(v.w)); }
// A 64-bit random number of a counter-based stream: SplitMix64, as on the CPU. `z` is the state of
// the stream advanced to that number; one step further is the next number. A stream is two words,
// the low one first.
#define STREAM_STEP 0x9e3779b97f4a7c15ul
INLINE ulong mixed(ulong z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ul;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebul;
    return z ^ (z >> 31);
}
// By exponentials, because fast math has no exact tanh.
INLINE float tangent(float u) { return 1.0f - quick_ratio(2.0f, quick_exp(2.0f * u) + 1.0f); }
INLINE float sigmoid(float x) { return quick_ratio(1.0f, 1.0f + quick_exp(-x)); }
INLINE float gelu(float x) { return 0.5f * x * (1.0f + tangent(0.7978845608f * (x + 0.044715f * x * x * x))); }
INLINE float gelu_slope(float x) {
    const float t = tangent(0.7978845608f * (x + 0.044715f * x * x * x));
    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * 0.7978845608f * (1.0f + 0.134145f * x * x);
}
// The cumulative normal distribution (Abramowitz and Stegun 7.1.26, within 8e-8).
INLINE float normal_share(float x) {
    const float z = (x < 0.0f ? -x : x) * 0.7071067812f;
    const float t = 1.0f / (1.0f + 0.3275911f * z);
    const float tail = 0.5f * t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f)))) * quick_exp(-z * z);
    return x < 0.0f ? tail : 1.0f - tail;
}
INLINE float gelu_erf_slope(float x) { return normal_share(x) + x * 0.3989422804f * quick_exp(-0.5f * x * x); }
INLINE float silu_slope(float x) { const float s = sigmoid(x); return s * (1.0f + x * (1.0f - s)); }
// The activation of a gate: 0 SiLU, 1 GELU; and its derivative.
INLINE float gate_value(float x, uint f) { return f == 0u ? x * sigmoid(x) : gelu(x); }
INLINE float gate_slope(float x, uint f) { return f == 0u ? silu_slope(x) : gelu_slope(x); }
// The levels of NF4 (Dettmers et al. 2023, QLoRA): fifteen selections by the bits of the code, which
// no processor turns into branches. The three languages declare tables in different ways.
INLINE float nf4_level(uint c) {
    const bool one = (c & 1u) != 0u, two = (c & 2u) != 0u, four = (c & 4u) != 0u;
    const float l0 = one ? -0.6961928009986877f : -1.0f, h0 = one ? -0.39491748809814453f : -0.5250730514526367f, v0 = two ? h0 : l0;
    const float l1 = one ? -0.18477343022823334f : -0.28444138169288635f, h1 = one ? 0.0f : -0.09105003625154495f, v1 = two ? h1 : l1;
    const float l2 = one ? 0.16093020141124725f : 0.07958029955625534f, h2 = one ? 0.33791524171829224f : 0.24611230194568634f, v2 = two ? h2 : l2;
    const float l3 = one ? 0.5626170039176941f : 0.44070982933044434f, h3 = one ? 1.0f : 0.7229568362236023f, v3 = two ? h3 : l3;
    const float low = four ? v1 : v0, high = four ? v3 : v2;
    return c >= 8u ? high : low;
}
// The activation after a norm: 0 none, 1 ReLU, 2 GELU.
INLINE float activated(float z, uint f) { return f == 1u ? (z < 0.0f ? 0.0f : z) : f == 2u ? gelu(z) : z; }
// Its gradient. Where a ReLU is closed nothing passes, not even infinity.
INLINE float activated_gradient(float z, float dy, uint f) { return f == 1u ? (z <= 0.0f ? 0.0f : dy) : f == 2u ? dy * gelu_slope(z) : dy; }
// Tiles of matrix products. A group of eight simdgroups multiplies tiles of TILE_ROWS and
// TILE_COLUMNS rows in shared memory, each with TILE_DEPTH neighbors of the inner axis; a simdgroup
// sums 32 by 32 elements. These definitions are for any compiler; the preludes have faster ones.
#ifndef TILE_KERNEL
#define TILE_KERNEL(name) KERNEL(name)
#endif
#ifndef TILE
#define TILE_STEP (TILE_DEPTH + 4u)
#define TILE(n, rows) SHARED(float, n, (rows) * TILE_STEP)
// Shared memory for eight rows of 32 sums of each simdgroup. `tile` may be overwritten.
#define STAGED(n, tile) SHARED(float, n, 2048)
// Stores two, and eight, neighbors of row `r` from place `k` on.
#define TILE_PUT2(t, rows, r, k, u, v) do { t[(r) * TILE_STEP + (k)] = u; t[(r) * TILE_STEP + (k) + 1u] = v; } while (0)
#define TILE_PUT8(t, rows, r, k, v, i) do { UNROLL for (uint e_ = 0u; e_ < 8u; e_++) t[(r) * TILE_STEP + (k) + e_] = v[(i) + e_]; } while (0)
#endif
#ifndef TILE_SUMS
#define TILE_SUMS(n) float n[32]
#define TILE_CLEAR(n) do { UNROLL for (uint i_ = 0u; i_ < 32u; i_++) n[i_] = 0.0f; } while (0)
// Adds the products of 32 rows of `a` from `r` on with 32 rows of `b` from `c` on.
#define TILE_MULTIPLY(n, a, b, r, c) do { for (uint k_ = 0u; k_ < TILE_DEPTH; k_++) { const float v_ = b[((c) + LANE) * TILE_STEP + k_]; UNROLL for (uint i_ = 0u; i_ < 32u; i_++) n[i_] += a[((r) + i_) * TILE_STEP + k_] * v_; } } while (0)
// Stores eight rows of the sums, from the row 8 `band` on.
#define TILE_BAND(n, band, to, at) do { UNROLL for (uint i_ = 0u; i_ < 8u; i_++) to[(at) + i_ * 32u + LANE] = n[(band) * 8u + i_]; } while (0)
#endif
