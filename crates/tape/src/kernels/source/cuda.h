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
