// Definitions for C++20: every lane is a coroutine of one thread, so that kernels run in tests,
// slowly and always in the same order. The lanes of a group meet at each reduction and barrier.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>
typedef unsigned int uint;
typedef unsigned short ushort;
typedef unsigned char uchar;
typedef unsigned long ulong;
using std::max; using std::min; using std::exp; using std::log; using std::sqrt;
namespace lanes {
// Switches between stacks: saves what a function must preserve on the stack, stores the stack
// pointer in `*from` and continues at `to`. `swapcontext` would ask the system at each switch, which
// takes four fifths of the time, and Apple does not maintain it on arm64.
extern "C" void lanes_switch(void** from, void* to) __asm__("lanes_switch");
#if defined(__aarch64__)
// x19 to x30 and d8 to d15; x30 is the return address.
static const size_t SAVED_WORDS = 20, RETURN_WORD = 11;
__asm__(".text\n.p2align 2\n.globl lanes_switch\nlanes_switch:\n"
        "sub sp, sp, #160\n"
        "stp x19, x20, [sp, #0]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\nstp x25, x26, [sp, #48]\n"
        "stp x27, x28, [sp, #64]\nstp x29, x30, [sp, #80]\n"
        "stp d8, d9, [sp, #96]\nstp d10, d11, [sp, #112]\nstp d12, d13, [sp, #128]\nstp d14, d15, [sp, #144]\n"
        "mov x9, sp\nstr x9, [x0]\nmov sp, x1\n"
        "ldp x19, x20, [sp, #0]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\nldp x25, x26, [sp, #48]\n"
        "ldp x27, x28, [sp, #64]\nldp x29, x30, [sp, #80]\n"
        "ldp d8, d9, [sp, #96]\nldp d10, d11, [sp, #112]\nldp d12, d13, [sp, #128]\nldp d14, d15, [sp, #144]\n"
        "add sp, sp, #160\nret\n");
#elif defined(__x86_64__)
// rbp, rbx and r12 to r15; the return address is above them, and a word that aligns the stack.
static const size_t SAVED_WORDS = 8, RETURN_WORD = 6;
__asm__(".text\n.p2align 4\n.globl lanes_switch\nlanes_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");
#else
#error "the emulator switches stacks on x86-64 and arm64 only"
#endif
typedef void* Context;
static void switch_to(Context& from, Context& to) { lanes_switch(&from, to); }
// The first switch to a lane returns into `start`, on the lane's own stack.
static void prepare(Context& lane, std::vector<char>& stack, void (*start)()) {
    const size_t end = reinterpret_cast<size_t>(stack.data() + stack.size()) / 16 * 16;
    void** top = reinterpret_cast<void**>(end) - SAVED_WORDS;
    std::fill(top, top + SAVED_WORDS, nullptr);
    top[RETURN_WORD] = reinterpret_cast<void*>(start);
    lane = top;
}
struct Meeting { uint size = 0, arrived = 0, round = 0; };
struct Lane { Context context; std::vector<char> stack = std::vector<char>(64 << 10); bool done = true; };
static Context home;
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
    while (m.round == round) switch_to(all[me].context, home);
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
// A finished lane is never continued.
static void enter() { body(arguments); all[now].done = true; switch_to(all[now].context, home); }
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
            prepare(lane.context, lane.stack, enter);
        }
        uint left = lanes;
        for (unsigned long long rounds = 0; left > 0; rounds++) {
            if (rounds > 1000000) return false;
            left = 0;
            for (now = 0; now < lanes; now++) {
                if (!all[now].done) switch_to(home, all[now].context);
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
#define TILE_ROWS 64u
#define TILE_COLUMNS 128u
#define TILE_DEPTH 32u
#define INLINE static inline
#define THREAD (lanes::now)
#define THREADS (lanes::simds * 32u)
#define LANE (lanes::now % 32u)
#define SIMD (lanes::now / 32u)
#define SIMDS (lanes::simds)
#define GROUP (lanes::group)
#define BARRIER lanes::meet(lanes::of_group)
// A barrier that also orders reads and writes of device memory.
#define DEVICE_BARRIER BARRIER
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
