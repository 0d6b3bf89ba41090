// Definitions for Metal.
#include <metal_stdlib>
using namespace metal;
#define KERNEL(name) kernel void name
// A kernel whose groups have up to 1024 threads: the compiler uses no more registers than allow it.
#define WIDE_KERNEL(name) [[kernel, max_total_threads_per_threadgroup(1024)]] void name
#define IN(T, n, i) device const T* n [[buffer(i)]]
#define OUT(T, n, i) device T* n [[buffer(i)]]
#define VALUE(T, n, i) constant T& n [[buffer(i)]]
#define GRID , uint lane_ [[thread_index_in_simdgroup]], uint simd_ [[simdgroup_index_in_threadgroup]], uint group_ [[threadgroup_position_in_grid]], uint simds_ [[simdgroups_per_threadgroup]]
#define SHARED(T, n, size) alignas(16) threadgroup T n[size]
// Four consecutive values of shared memory, aligned to 16 bytes.
#define QUAD(a, i) (*(threadgroup const float4*)(&(a)[i]))
// The address space of device memory, for casts; and four values as one word.
#define GLOBAL device
#define FLOAT4(a, b, c, d) float4(a, b, c, d)
#define USHORT4(a, b, c, d) ushort4(a, b, c, d)
#define UNROLL _Pragma("clang loop unroll(full)")
// Rows per block of attention, keys that it reads at a time, and keys per block whose gradients it
// sums: 32 KiB of shared memory.
#define ATTEND_ROWS 32
#define ATTEND_KEYS 32
#define ATTEND_BACK 16
#define INLINE static inline
#define THREAD (simd_ * 32u + lane_)
#define THREADS (simds_ * 32u)
#define LANE lane_
#define SIMD simd_
#define SIMDS simds_
#define GROUP group_
#define BARRIER threadgroup_barrier(mem_flags::mem_threadgroup)
// A barrier that also orders reads and writes of device memory.
#define DEVICE_BARRIER do { threadgroup_barrier(mem_flags::mem_device); BARRIER; } while (0)
#define SIMD_BARRIER simdgroup_barrier(mem_flags::mem_threadgroup)
#define INFINITE INFINITY
INLINE float as_float(uint v) { return as_type<float>(v); }
INLINE uint as_uint(float v) { return as_type<uint>(v); }
INLINE float quick_exp(float x) { return exp(x); }
INLINE float quick_ratio(float a, float b) { return a / b; }
INLINE float half_to_float(ushort v) { return float(as_type<half>(v)); }
INLINE ushort float_to_half(float v) { return as_type<ushort>(half(v)); }
// Tiles of matrix products by simdgroup matrices.
#define TILE_ROWS 64u
#define TILE_COLUMNS 128u
#define TILE_DEPTH 16u
#define TILE_SUMS(n) simdgroup_float8x8 n[4][4]
#define TILE_CLEAR(n) do { UNROLL for (uint i_ = 0u; i_ < 4u; i_++) UNROLL for (uint j_ = 0u; j_ < 4u; j_++) n[i_][j_] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f); } while (0)
#define TILE_MULTIPLY(n, a, b, r, c) do { UNROLL for (uint k_ = 0u; k_ < TILE_DEPTH; k_ += 8u) { \
    simdgroup_float8x8 u_[4], v_[4]; \
    UNROLL for (uint i_ = 0u; i_ < 4u; i_++) { simdgroup_load(u_[i_], &a[((r) + 8u * i_) * TILE_STEP + k_], TILE_STEP); simdgroup_load(v_[i_], &b[((c) + 8u * i_) * TILE_STEP + k_], TILE_STEP, ulong2(0, 0), true); } \
    UNROLL for (uint i_ = 0u; i_ < 4u; i_++) UNROLL for (uint j_ = 0u; j_ < 4u; j_++) simdgroup_multiply_accumulate(n[i_][j_], u_[i_], v_[j_], n[i_][j_]); } } while (0)
#define TILE_BAND(n, band, to, at) do { UNROLL for (uint j_ = 0u; j_ < 4u; j_++) simdgroup_store(n[band][j_], &to[(at) + 8u * j_], 32); } while (0)
