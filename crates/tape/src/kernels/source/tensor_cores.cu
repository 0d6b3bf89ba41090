// f32 products on the tensor cores of Hopper, which take bf16: each number is split exactly into
// the sum of three bf16, and of the nine products of two such sums the six largest are added. The
// omitted ones are 2^-24 of a product. Infinity becomes NaN, because its remainder is infinity
// minus infinity; the training skips such a step. Tensor cores truncate while they accumulate, so
// the largest parts are summed separately from the others, and at most 1,024 of them before the sum
// is added to the result. For CUDA only; other devices use their own product.
typedef unsigned int uint;
typedef unsigned long long word;
#define INLINE static __device__ __forceinline__
#define INLINE_IN __device__ __forceinline__
// A thread group works on ROWS by COLUMNS elements of the result, DEPTH elements of the inner axis
// at a time.
#define ROWS 128
#define DEPTH 32
// Threads that load operands.
#define FETCHING 256
// Blocks of the inner axis after which a sum is added to the result.
#define FLUSH 32
// Blocks that are in shared memory at once.
#define STAGES 3

// Upper half from `b`, lower half from `a`: truncated, and rounded.
INLINE uint cut(float a, float b) { uint d; asm("cvt.rz.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(b), "f"(a)); return d; }
INLINE uint rounded(float a, float b) { uint d; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(b), "f"(a)); return d; }
INLINE float lower(uint v) { return __uint_as_float(v << 16); }
INLINE float upper(uint v) { return __uint_as_float(v & 0xffff0000u); }

// Eight elements of the inner axis as three times eight bf16, at the same place of three planes.
INLINE void store(unsigned char* to, uint plane, const float* v) {
    uint p[3][4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        float a = v[2 * j], b = v[2 * j + 1];
        p[0][j] = cut(a, b); a -= lower(p[0][j]); b -= upper(p[0][j]);
        p[1][j] = rounded(a, b); a -= lower(p[1][j]); b -= upper(p[1][j]);
        p[2][j] = rounded(a, b);
    }
#pragma unroll
    for (int i = 0; i < 3; i++) *reinterpret_cast<uint4*>(to + i * plane) = make_uint4(p[i][0], p[i][1], p[i][2], p[i][3]);
}

// Loads eight consecutive elements, those before `end`.
INLINE void load(float* v, const float* at, bool here, uint from, uint end) {
    const float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    const float4 a = here && from < end ? *reinterpret_cast<const float4*>(at) : none;
    const float4 b = here && from + 4u < end ? *reinterpret_cast<const float4*>(at + 4) : none;
    v[0] = a.x; v[1] = a.y; v[2] = a.z; v[3] = a.w; v[4] = b.x; v[5] = b.y; v[6] = b.z; v[7] = b.w;
}
// The layout of WIDTH rows or columns of an operand in shared memory: blocks of 8 by 8, one after
// the other. ALONG_FIRST: a row of `a` or a column of `b` is contiguous in memory, and so it is in
// a block; otherwise transposed. The padding keeps eight lanes in different banks.
template <bool ALONG_FIRST, int WIDTH>
struct Operand {
    static constexpr uint ALONG = ALONG_FIRST ? 160u : WIDTH / 8 * 144u, ACROSS = ALONG_FIRST ? 640u : 144u;
    // Bytes per plane, and units of eight elements per thread.
    static constexpr uint PLANE = WIDTH / 8 * 640u, UNITS = (WIDTH * 4 + FETCHING - 1) / FETCHING;
    static INLINE_IN uint across(uint unit) { return ALONG_FIRST ? unit >> 2 : unit % (WIDTH / 8) * 8u; }
    static INLINE_IN uint along(uint unit) { return ALONG_FIRST ? (unit & 3u) * 8u : unit / (WIDTH / 8); }
    static INLINE_IN void fetch(float* v, const float* x, uint step, uint first, uint width, uint from, uint end, uint unit) {
        if (WIDTH * 4 % FETCHING != 0 && unit >= WIDTH * 4u) return;
        const uint w = first + across(unit), k = from + along(unit);
        if (ALONG_FIRST) load(v, x + size_t(w) * step + k, w < width, k, end);
        else load(v, x + size_t(k) * step + w, k < end, w, width);
    }
    static INLINE_IN void write_addends(unsigned char* to, const float* v, uint unit) {
        if (WIDTH * 4 % FETCHING != 0 && unit >= WIDTH * 4u) return;
        const uint w = across(unit), k = along(unit);
        store(to + (w >> 3) * ACROSS + (k >> 3) * ALONG + (ALONG_FIRST ? w & 7u : k & 7u) * 16u, PLANE, v);
    }
    // Its descriptor for the tensor core.
    static INLINE_IN word described(uint address) { return word((address & 0x3ffffu) >> 4) | word(ALONG >> 4) << 16 | word(ACROSS >> 4) << 32; }
};
#define R8(a, i) "+f"(a[i]), "+f"(a[i + 1]), "+f"(a[i + 2]), "+f"(a[i + 3]), "+f"(a[i + 4]), "+f"(a[i + 5]), "+f"(a[i + 6]), "+f"(a[i + 7])
template <int A_TURNED, int B_TURNED>
INLINE void multiply(float (&d)[64], word a, word b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
        "%64, %65, 1, 1, 1, %66, %67;"
        : R8(d, 0), R8(d, 8), R8(d, 16), R8(d, 24), R8(d, 32), R8(d, 40), R8(d, 48), R8(d, 56) : "l"(a), "l"(b), "n"(A_TURNED), "n"(B_TURNED));
}
template <int A_TURNED, int B_TURNED>
INLINE void multiply(float (&d)[48], word a, word b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47}, "
        "%48, %49, 1, 1, 1, %50, %51;"
        : R8(d, 0), R8(d, 8), R8(d, 16), R8(d, 24), R8(d, 32), R8(d, 40) : "l"(a), "l"(b), "n"(A_TURNED), "n"(B_TURNED));
}
template <int A_TURNED, int B_TURNED>
INLINE void multiply(float (&d)[32], word a, word b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
        "%32, %33, 1, 1, 1, %34, %35;"
        : R8(d, 0), R8(d, 8), R8(d, 16), R8(d, 24) : "l"(a), "l"(b), "n"(A_TURNED), "n"(B_TURNED));
}

#define ARRIVE(id) asm volatile("barrier.cta.arrive %0, %1;" :: "r"(id), "n"(256 + FETCHING) : "memory")
#define MEET(id) asm volatile("barrier.cta.sync %0, %1;" :: "r"(id), "n"(256 + FETCHING) : "memory")
// Barriers: a stage is full; a stage may be overwritten; multiplying threads only.
#define FILLED 1u
#define FREE 4u
#define ALONE 7u

// c = a b + keep c. `parts` groups share the inner axis of a tile, `each` elements per group, and
// add to the result one after the other, in the order of `turns`: one word per tile, all zero
// before and after. If `many` is 1, the operands are lists of addresses, one per row of groups; if
// it is 2, their matrices have these distances. Then tiles are not shared. Two warpgroups multiply,
// the others load.
template <int COLUMNS, bool A_ALONG, bool B_ALONG>
INLINE void product(const float* a, const float* b, float* c, uint m, uint n, uint k, uint a_step, uint b_step, uint c_step, float keep, uint parts, uint each, uint* turns, uint many, word a_stride, word b_stride, word c_stride) {
    extern __shared__ __align__(128) unsigned char shared[];
    using A = Operand<A_ALONG, ROWS>;
    using B = Operand<B_ALONG, COLUMNS>;
    constexpr uint STAGE = 3 * (A::PLANE + B::PLANE);
    if (many == 1u) {
        a = reinterpret_cast<const float* const*>(a)[blockIdx.y];
        b = reinterpret_cast<const float* const*>(b)[blockIdx.y];
        c = reinterpret_cast<float* const*>(c)[blockIdx.y];
    } else if (many == 2u) {
        a += blockIdx.y * a_stride;
        b += blockIdx.y * b_stride;
        c += blockIdx.y * c_stride;
    }
    const uint across = (m + ROWS - 1) / ROWS, tiles = across * ((n + COLUMNS - 1) / COLUMNS);
    const uint tile = blockIdx.x % tiles, part = blockIdx.x / tiles;
    const uint row = tile % across * ROWS, column = tile / across * COLUMNS;
    const uint begin = part * each, end = min(k, begin + each), steps = (end - begin + DEPTH - 1) / DEPTH;
    // The same value in all lanes, which the compiler can see too.
    const uint group = __shfl_sync(0xffffffffu, threadIdx.x >> 7, 0);
    if (group >= 2u) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
        const uint thread = threadIdx.x - 256u;
        float av[A::UNITS][8], bv[B::UNITS][8];
#pragma unroll
        for (uint i = 0; i < A::UNITS; i++) A::fetch(av[i], a, a_step, row, m, begin, end, thread + i * FETCHING);
#pragma unroll
        for (uint i = 0; i < B::UNITS; i++) B::fetch(bv[i], b, b_step, column, n, begin, end, thread + i * FETCHING);
        for (uint step = 0u, stage = 0u; step < steps; step++) {
            if (step >= STAGES) MEET(FREE + stage);
            unsigned char* to = shared + stage * STAGE;
            const uint next = begin + (step + 1u) * DEPTH;
            // The next elements are loaded while these are stored.
#pragma unroll
            for (uint i = 0; i < A::UNITS; i++) {
                A::write_addends(to, av[i], thread + i * FETCHING);
                A::fetch(av[i], a, a_step, row, m, next, end, thread + i * FETCHING);
            }
#pragma unroll
            for (uint i = 0; i < B::UNITS; i++) {
                B::write_addends(to + 3 * A::PLANE, bv[i], thread + i * FETCHING);
                B::fetch(bv[i], b, b_step, column, n, next, end, thread + i * FETCHING);
            }
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            ARRIVE(FILLED + stage);
            stage = stage + 1u == STAGES ? 0u : stage + 1u;
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 168;");
    const uint thread = threadIdx.x;
    float big[COLUMNS / 2], small[COLUMNS / 2];
#pragma unroll
    for (int i = 0; i < COLUMNS / 2; i++) { big[i] = 0.0f; small[i] = 0.0f; }
    const uint base = uint(__cvta_generic_to_shared(shared)), a_of = group * (64u / 8u * A::ACROSS);
    if (parts > 1u && part > 0u) keep = 1.0f;
    for (uint step = 0u, stage = 0u; step < steps;) {
        for (const uint last = min(steps, step + FLUSH); step < last; step++) {
            const uint at = base + stage * STAGE;
            MEET(FILLED + stage);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (uint half = 0; half < DEPTH / 16; half++) {
                word x[3], y[3];
#pragma unroll
                for (uint i = 0; i < 3; i++) {
                    x[i] = A::described(at + i * A::PLANE + a_of + half * 2u * A::ALONG);
                    y[i] = B::described(at + 3u * A::PLANE + i * B::PLANE + half * 2u * B::ALONG);
                }
                multiply<!A_ALONG, !B_ALONG>(small, x[2], y[0]); multiply<!A_ALONG, !B_ALONG>(small, x[1], y[1]); multiply<!A_ALONG, !B_ALONG>(small, x[0], y[2]);
                multiply<!A_ALONG, !B_ALONG>(small, x[1], y[0]); multiply<!A_ALONG, !B_ALONG>(small, x[0], y[1]); multiply<!A_ALONG, !B_ALONG>(big, x[0], y[0]);
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            // The stage before this one has been read.
            if (step > 0u && step - 1u + STAGES < steps) ARRIVE(FREE + (stage == 0u ? STAGES - 1u : stage - 1u));
            stage = stage + 1u == STAGES ? 0u : stage + 1u;
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) small[i] += big[i];
        if (parts > 1u) {
            if (thread == 0u) { uint turn; do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(turn) : "l"(turns + tile) : "memory"); while (turn != part); }
            asm volatile("barrier.cta.sync %0, 256;" :: "r"(ALONE) : "memory");
        }
        const uint lane = thread & 31u, r = row + group * 64u + (thread >> 5 & 3u) * 16u + (lane >> 2), x = column + (lane & 3u) * 2u;
        float* to = c + size_t(r) * c_step + x;
        // The whole old result is loaded before any of it is changed.
        if (keep != 0.0f) {
#pragma unroll
            for (uint i = 0; i < COLUMNS / 4; i++) {
                const uint down = (i & 1u) * 8u, beside = (i >> 1) * 8u;
                const float2 old = r + down < m && x + beside < n ? __ldcg(reinterpret_cast<const float2*>(to + down * c_step + beside)) : make_float2(0.0f, 0.0f);
                big[2 * i] = old.x; big[2 * i + 1] = old.y;
            }
#pragma unroll
            for (int i = 0; i < COLUMNS / 2; i++) small[i] += keep * big[i];
        }
#pragma unroll
        for (uint i = 0; i < COLUMNS / 4; i++) {
            const uint down = (i & 1u) * 8u, beside = (i >> 1) * 8u;
            if (r + down < m && x + beside < n) __stcg(reinterpret_cast<float2*>(to + down * c_step + beside), make_float2(small[2 * i], small[2 * i + 1]));
        }
        keep = 1.0f;
#pragma unroll
        for (int i = 0; i < COLUMNS / 2; i++) { big[i] = 0.0f; small[i] = 0.0f; }
        if (parts > 1u) {
            __threadfence();
            asm volatile("barrier.cta.sync %0, 256;" :: "r"(ALONE) : "memory");
            if (thread == 0u) asm volatile("st.release.gpu.global.u32 [%0], %1;" :: "l"(turns + tile), "r"(part + 1u == parts ? 0u : part + 1u) : "memory");
        }
    }
}
#define PRODUCT(name, columns, a_along, b_along) \
    extern "C" __global__ void __launch_bounds__(256 + FETCHING, 1) name(const float* a, const float* b, float* c, uint m, uint n, uint k, uint a_step, uint b_step, uint c_step, float keep, uint parts, uint each, uint* turns, uint many, word a_stride, word b_stride, word c_stride) { \
        product<columns, a_along, b_along>(a, b, c, m, n, k, a_step, b_step, c_step, keep, parts, each, turns, many, a_stride, b_stride, c_stride); }
// By the order of the operands, rows (n) or columns (t), and by the width of the tile. Along the
// inner axis, a row of `a` and a column of `b` are contiguous.
#define PRODUCTS(columns) \
    PRODUCT(product_nn_##columns, columns, true, false) PRODUCT(product_nt_##columns, columns, true, true) \
    PRODUCT(product_tn_##columns, columns, false, false) PRODUCT(product_tt_##columns, columns, false, true)
PRODUCTS(128)
PRODUCTS(96)
PRODUCTS(64)
