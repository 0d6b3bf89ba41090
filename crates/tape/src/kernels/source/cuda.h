// Definitions for CUDA C++. A simdgroup is a warp, a group is a block.
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned char uchar;
typedef unsigned long ulong;
#define KERNEL(name) extern "C" __global__ void name
// A kernel that is launched with up to 1,024 threads; the compiler limits its registers to that.
#define WIDE_KERNEL(name) extern "C" __global__ __launch_bounds__(1024) void name
#define IN(T, n, i) const T* __restrict__ n
#define OUT(T, n, i) T* __restrict__ n
// Without __grid_constant__, a kernel that indexes an array of its parameters copies them to local
// memory first.
#define VALUE(T, n, i) const __grid_constant__ T n
#define GRID
#define SHARED(T, n, size) __shared__ __align__(16) T n[size]
// Four consecutive values of shared memory, aligned to 16 bytes.
#define QUAD(a, i) (*reinterpret_cast<const float4*>(&(a)[i]))
// The address space of device memory, for casts; and four values as one word.
#define GLOBAL
#define FLOAT4(a, b, c, d) make_float4(a, b, c, d)
#define USHORT4(a, b, c, d) make_ushort4(a, b, c, d)
#define UNROLL _Pragma("unroll")
// Rows per block of attention, keys that it reads at a time, and keys per block whose gradients it
// sums: 48 KiB of shared memory.
#define ATTEND_ROWS 64
#define ATTEND_KEYS 64
#define ATTEND_BACK 48
#define INLINE static __device__ __forceinline__
#define THREAD (threadIdx.x)
#define THREADS (blockDim.x)
#define LANE (threadIdx.x & 31u)
#define SIMD (threadIdx.x >> 5)
#define SIMDS (blockDim.x >> 5)
#define GROUP (blockIdx.x)
#define BARRIER __syncthreads()
// A barrier that also orders reads and writes of device memory.
#define DEVICE_BARRIER __syncthreads()
#define SIMD_BARRIER __syncwarp()
#define INFINITE __int_as_float(0x7f800000)
INLINE float as_float(uint v) { return __uint_as_float(v); }
INLINE uint as_uint(float v) { return __float_as_uint(v); }
INLINE float half_to_float(ushort v) { float f; asm("{ cvt.f32.f16 %0, %1; }" : "=f"(f) : "h"(v)); return f; }
INLINE ushort float_to_half(float v) { ushort h; asm("{ cvt.rn.f16.f32 %0, %1; }" : "=h"(h) : "f"(v)); return h; }
// Accurate to a few units in the last place.
INLINE float quick_exp(float x) { return __expf(x); }
INLINE float quick_ratio(float a, float b) { return __fdividef(a, b); }
INLINE float4 bf16_to_float4(ushort4 v) { return make_float4(__uint_as_float(uint(v.x) << 16), __uint_as_float(uint(v.y) << 16), __uint_as_float(uint(v.z) << 16), __uint_as_float(uint(v.w) << 16)); }
INLINE uint two_halves(float low, float high) { uint d; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low)); return d; }
INLINE ushort4 float_to_bf164(float4 v) {
    const uint a = two_halves(v.x, v.y), b = two_halves(v.z, v.w);
    return make_ushort4(ushort(a), ushort(a >> 16), ushort(b), ushort(b >> 16));
}
#define HAS_BF16_BY_FOUR
INLINE float simd_sum(float v) { for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o); return v; }
INLINE float simd_max(float v) { for (int o = 16; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o)); return v; }
// Tiles of matrix products by tensor cores, which take halves. An f32 is split exactly into the sum
// of three bf16, and of the nine products of two such sums the six largest are added; what is left
// out is 2^-24 of a product. Infinity becomes NaN, because its remainder is infinity minus infinity.
#define TILE_ROWS 64u
#define TILE_COLUMNS 128u
#define TILE_DEPTH 32u
#define TILE_KERNEL(name) extern "C" __global__ __launch_bounds__(256, 2) void name
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
// Eight more elements per row keep eight lanes in different banks.
#define TILE_STEP 40u
#define TILE(n, rows) SHARED(ushort, n, TILE_PLANES * (rows) * TILE_STEP)
#define STAGED(n, tile) float* n = reinterpret_cast<float*>(tile)
#define TILE_PUT2(t, rows, r, k, u, v) tile_put2<TILE_PLANES, TILE_F16>(t + (r) * TILE_STEP + (k), (rows) * TILE_STEP, u, v)
#define TILE_PUT8(t, rows, r, k, v, i) tile_put8<TILE_PLANES, TILE_F16>(t + (r) * TILE_STEP + (k), (rows) * TILE_STEP, &v[i])
#define TILE_SUMS(n) float n[2][4][4]
#define TILE_CLEAR(n) do { UNROLL for (uint i_ = 0u; i_ < 2u; i_++) UNROLL for (uint j_ = 0u; j_ < 4u; j_++) UNROLL for (uint e_ = 0u; e_ < 4u; e_++) n[i_][j_][e_] = 0.0f; } while (0)
#define TILE_MULTIPLY(n, a, b, r, c) tile_multiply<TILE_PLANES, TILE_F16>(n, a + (r) * TILE_STEP, b + (c) * TILE_STEP)
#define TILE_BAND(n, band, to, at) do { UNROLL for (uint j_ = 0u; j_ < 4u; j_++) *reinterpret_cast<float2*>(&to[(at) + (LANE >> 2) * 32u + j_ * 8u + (LANE & 3u) * 2u]) = make_float2(n[(band) >> 1][j_][((band) & 1u) * 2u], n[(band) >> 1][j_][((band) & 1u) * 2u + 1u]); } while (0)
INLINE uint two_truncated(float low, float high) { uint d; asm("cvt.rz.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low)); return d; }
INLINE uint two_f16(float low, float high) { uint d; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low)); return d; }
// Two neighbors as words of two halves, one per plane.
template <int PLANES, int F16>
INLINE void tile_words(uint (&p)[PLANES], float a, float b) {
    if (PLANES == 1) { p[0] = F16 ? two_f16(a, b) : two_halves(a, b); return; }
    p[0] = two_truncated(a, b); a -= as_float(p[0] << 16); b -= as_float(p[0] & 0xffff0000u);
    p[PLANES - 2] = two_halves(a, b); a -= as_float(p[PLANES - 2] << 16); b -= as_float(p[PLANES - 2] & 0xffff0000u);
    p[PLANES - 1] = two_halves(a, b);
}
template <int PLANES, int F16>
INLINE void tile_put2(ushort* to, uint plane, float a, float b) {
    uint p[PLANES];
    tile_words<PLANES, F16>(p, a, b);
    UNROLL for (int i = 0; i < PLANES; i++) *reinterpret_cast<uint*>(to + i * plane) = p[i];
}
template <int PLANES, int F16>
INLINE void tile_put8(ushort* to, uint plane, const float* v) {
    uint p[4][PLANES];
    UNROLL for (int j = 0; j < 4; j++) tile_words<PLANES, F16>(p[j], v[2 * j], v[2 * j + 1]);
    UNROLL for (int i = 0; i < PLANES; i++) *reinterpret_cast<uint4*>(to + i * plane) = make_uint4(p[0][i], p[1][i], p[2][i], p[3][i]);
}
// Four matrices of 8 by 8, whose rows begin at the places of eight lanes each.
INLINE void tile_load(uint (&d)[4], const ushort* from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(uint(__cvta_generic_to_shared(from))) : "memory");
}
template <int F16>
INLINE void tile_add(float (&d)[4], const uint (&a)[4], uint b0, uint b1) {
    if (F16) asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <int PLANES, int F16>
INLINE void tile_multiply(float (&sums)[2][4][4], const ushort* a, const ushort* b) {
    const uint lane = LANE;
    a += (lane & 15u) * TILE_STEP + (lane >> 4) * 8u;
    b += ((lane & 7u) + (lane >> 4) * 8u) * TILE_STEP + (lane >> 3 & 1u) * 8u;
    UNROLL for (uint k = 0u; k < TILE_DEPTH; k += 16u) {
        uint x[PLANES][2][4];
        UNROLL for (uint p = 0u; p < PLANES; p++) UNROLL for (uint i = 0u; i < 2u; i++) tile_load(x[p][i], a + (p * TILE_ROWS + i * 16u) * TILE_STEP + k);
        UNROLL for (uint j = 0u; j < 2u; j++) {
            uint y[PLANES][4];
            UNROLL for (uint p = 0u; p < PLANES; p++) tile_load(y[p], b + (p * TILE_COLUMNS + j * 16u) * TILE_STEP + k);
            if (PLANES == 1) {
                UNROLL for (uint i = 0u; i < 2u; i++) UNROLL for (uint h = 0u; h < 2u; h++) tile_add<F16>(sums[i][2u * j + h], x[0][i], y[0][2u * h], y[0][2u * h + 1u]);
                continue;
            }
            // Tensor cores truncate while they accumulate, so a few products are summed apart, the
            // smallest first, and added with rounding.
            float t[2][2][4];
            UNROLL for (uint e = 0u; e < 16u; e++) t[e >> 3][e >> 2 & 1u][e & 3u] = 0.0f;
            UNROLL for (uint s = PLANES; s > 0u; s--) UNROLL for (uint p = 0u; p < s; p++) UNROLL for (uint i = 0u; i < 2u; i++) UNROLL for (uint h = 0u; h < 2u; h++) tile_add<0>(t[i][h], x[s - 1u - p][i], y[p][2u * h], y[p][2u * h + 1u]);
            UNROLL for (uint e = 0u; e < 16u; e++) sums[e >> 3][2u * j + (e >> 2 & 1u)][e & 3u] += t[e >> 3][e >> 2 & 1u][e & 3u];
        }
    }
}
#endif
