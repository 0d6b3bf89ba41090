// Definitions for C++20: every lane is a coroutine of one thread, so that kernels run in tests,
// slowly and always in the same order. The lanes of a group meet at each reduction and barrier.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>
#include <ucontext.h>
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned char uchar;
typedef unsigned long ulong;
using std::max; using std::min; using std::exp; using std::log; using std::sqrt;
namespace lanes {
struct Meeting { uint size = 0, arrived = 0, round = 0; };
struct Lane { ucontext_t context; std::vector<char> stack = std::vector<char>(64 << 10); bool done = true; };
static ucontext_t home;
static std::vector<Lane> all;
static std::vector<Meeting> of_simds;
static std::vector<float> slots;
static Meeting of_group;
static uint now, group, simds;
static void (*body)(void**);
static void** arguments;
static void meet(Meeting& m) {
    if (++m.arrived == m.size) { m.arrived = 0; m.round++; return; }
    const uint round = m.round, me = now;
    while (m.round == round) swapcontext(&all[me].context, &home);
}
static float reduce(float v, float (*f)(float, float)) {
    const uint me = now, first = me / 32 * 32;
    slots[me] = v;
    meet(of_simds[me / 32]);
    float r = slots[first];
    for (uint i = 1; i < 32; i++) r = f(r, slots[first + i]);
    meet(of_simds[me / 32]);
    return r;
}
static void enter() { body(arguments); all[now].done = true; }
// Runs `count` groups of `width` simdgroups one after the other. Returns false if a group
// deadlocks.
static bool run(void (*kernel)(void**), void** args, uint count, uint width) {
    const uint lanes = 32 * width;
    if (all.size() < lanes) all.resize(lanes);
    body = kernel; arguments = args; simds = width;
    for (group = 0; group < count; group++) {
        of_simds.assign(width, Meeting{32, 0, 0}); of_group = Meeting{lanes, 0, 0}; slots.assign(lanes, 0.0f);
        for (uint l = 0; l < lanes; l++) {
            Lane& lane = all[l];
            lane.done = false;
            getcontext(&lane.context);
            lane.context.uc_stack.ss_sp = lane.stack.data(); lane.context.uc_stack.ss_size = lane.stack.size(); lane.context.uc_link = &home;
            makecontext(&lane.context, enter, 0);
        }
        uint left = lanes;
        for (unsigned long long rounds = 0; left > 0; rounds++) {
            if (rounds > 1000000) return false;
            left = 0;
            for (now = 0; now < lanes; now++) {
                if (!all[now].done) swapcontext(&home, &all[now].context);
                left += !all[now].done;
            }
        }
    }
    return true;
}
// Calls a kernel with arguments passed by address, as CUDA takes them.
template <class... A> struct Call {
    template <size_t... I> static void with(void (*f)(A...), void** args, std::index_sequence<I...>) { f(*static_cast<std::remove_const_t<A>*>(args[I])...); }
    static void of(void (*f)(A...), void** args) { with(f, args, std::index_sequence_for<A...>()); }
};
template <class... A> static void call(void (*f)(A...), void** args) { Call<A...>::of(f, args); }
}
#define KERNEL(name) static void name
#define WIDE_KERNEL(name) KERNEL(name)
#define IN(T, n, i) const T* n
#define OUT(T, n, i) T* n
#define VALUE(T, n, i) const T n
#define GRID
#define SHARED(T, n, size) alignas(16) static T n[size]
struct float4 { float x, y, z, w; };
struct ushort4 { ushort x, y, z, w; };
#define GLOBAL
#define FLOAT4(a, b, c, d) float4{a, b, c, d}
#define USHORT4(a, b, c, d) ushort4{a, b, c, d}
#define QUAD(a, i) (*reinterpret_cast<const float4*>(&(a)[i]))
#define UNROLL
#define ATTEND_ROWS 32
#define ATTEND_KEYS 32
#define ATTEND_BACK 16
#define INLINE static inline
#define THREAD (lanes::now)
#define THREADS (lanes::simds * 32u)
#define LANE (lanes::now % 32u)
#define SIMD (lanes::now / 32u)
#define SIMDS (lanes::simds)
#define GROUP (lanes::group)
#define BARRIER lanes::meet(lanes::of_group)
#define SIMD_BARRIER lanes::meet(lanes::of_simds[lanes::now / 32])
#define INFINITE std::numeric_limits<float>::infinity()
INLINE float as_float(uint v) { float f; std::memcpy(&f, &v, 4); return f; }
INLINE uint as_uint(float v) { uint u; std::memcpy(&u, &v, 4); return u; }
INLINE float quick_exp(float x) { return exp(x); }
INLINE float quick_ratio(float a, float b) { return a / b; }
INLINE float half_to_float(ushort h) {
    const uint sign = uint(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, rest = h & 1023u;
    if (exponent == 31u) return as_float(sign | 0x7f800000u | rest << 13);
    if (exponent == 0u) return (sign ? -1.0f : 1.0f) * float(rest) * 5.9604644775390625e-8f;
    return as_float(sign | (exponent + 112u) << 23 | rest << 13);
}
INLINE ushort float_to_half(float v) {
    const uint u = as_uint(v), sign = (u >> 16) & 0x8000u, rest = u & 0x7fffffffu;
    if (rest > 0x7f800000u) return ushort(sign | 0x7e00u);
    if (rest >= 0x477ff000u) return ushort(sign | 0x7c00u);
    if (rest < 0x38800000u) return ushort(sign | uint(std::nearbyint(std::fabs(v) * 16777216.0f)));
    return ushort(sign | ((rest + 0xfffu + ((rest >> 13) & 1u) - 0x38000000u) >> 13));
}
INLINE float simd_sum(float v) { return lanes::reduce(v, [](float a, float b) { return a + b; }); }
INLINE float simd_max(float v) { return lanes::reduce(v, [](float a, float b) { return a > b ? a : b; }); }
