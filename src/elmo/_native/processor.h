// What this processor is: which kernels run on it, best first, and whether Intel made it.
//
// x86 processors are asked by CPUID. Compilers offer __builtin_cpu_supports for this, but that of zig 0.17, which
// compiles the published wheels, finds nothing.

#pragma once

#include <cstring>
#include <vector>

#include "kernel.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#if defined(HAS_AMX)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#if !defined(HWCAP2_BF16)  // older headers lack it
#define HWCAP2_BF16 (1 << 14)
#endif
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace elmo {
namespace {

#if defined(__x86_64__)
struct Answer {
    unsigned a = 0, b = 0, c = 0, d = 0;
};

// The registers after CPUID, zeros where the processor doesn't know the question.
Answer ask(unsigned leaf, unsigned subleaf = 0) {
    Answer found;
    if (__get_cpuid_count(leaf, subleaf, &found.a, &found.b, &found.c, &found.d)) return found;
    return {};
}

bool has(unsigned word, unsigned bits) { return (word & bits) == bits; }

// The registers that the system keeps for each thread (XCR0); the others can't be used, whatever the processor has.
__attribute__((target("xsave"))) unsigned kept_states() {
    constexpr unsigned OSXSAVE = 1u << 27;
    return has(ask(1).c, OSXSAVE) ? static_cast<unsigned>(_xgetbv(0)) : 0;
}

bool made_by_intel() {
    const Answer vendor = ask(0);
    return std::memcmp(&vendor.b, "Genu", 4) == 0 && std::memcmp(&vendor.d, "ineI", 4) == 0 &&
           std::memcmp(&vendor.c, "ntel", 4) == 0;
}

#if defined(HAS_AMX)
// Whether there are tiles: the processor has them, the system keeps them, and grants them to this process when asked.
bool has_tiles() {
    constexpr unsigned AMX = 1u << 22 | 1u << 24;  // AMX-BF16 and AMX-TILE
    constexpr unsigned STATES = 3u << 17;          // shapes and tiles
    constexpr long REQUEST = 0x1023, TILES = 18;   // ARCH_REQ_XCOMP_PERM, which older headers lack
    return has(ask(7).d, AMX) && has(kept_states(), STATES) && syscall(SYS_arch_prctl, REQUEST, TILES) == 0;
}
#endif

std::vector<const Kernels*> find_supported() {
    constexpr unsigned FMA = 1u << 12, AVX2 = 1u << 5, AVX512_F_BW_VL = 1u << 16 | 1u << 30 | 1u << 31;
    constexpr unsigned VNNI = 1u << 11;
    constexpr unsigned YMM = 3u << 1, ZMM = 7u << 5 | YMM;  // among the kept states
    const Answer basic = ask(1), extended = ask(7);
    const unsigned kept = kept_states();
    std::vector<const Kernels*> found;
    if (!has(kept, YMM) || !has(basic.c, FMA) || !has(extended.b, AVX2)) return found;
    // Each set also uses those before it, so one is taken only if its predecessors are there too.
    const bool wide = has(kept, ZMM) && has(extended.b, AVX512_F_BW_VL), vnni = wide && has(extended.c, VNNI);
#if defined(HAS_AMX)
    if (vnni && has_tiles()) found.push_back(&avx512_amx);
#endif
#if defined(HAS_AVX512_BF16)
    constexpr unsigned BF16 = 1u << 5;
    if (vnni && has(ask(7, 1).a, BF16)) found.push_back(&avx512_bf16);
#endif
    if (vnni) found.push_back(&avx512_vnni);
    if (wide) found.push_back(&avx512);
    found.push_back(&avx2);
    return found;
}
#else
bool made_by_intel() { return false; }

#if defined(__aarch64__) && defined(__APPLE__)
bool has_feature(const char* name) {
    int value = 0;
    size_t size = sizeof value;
    return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}
#endif

std::vector<const Kernels*> find_supported() {
    std::vector<const Kernels*> found;
#if defined(__aarch64__)
    // Old compilers leave out the kernels that these choose (kernel.h).
#if defined(__linux__)
    const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    [[maybe_unused]] const bool dot = first & HWCAP_ASIMDDP, bf16 = second & HWCAP2_BF16;
#elif defined(__APPLE__)
    [[maybe_unused]] const bool dot = has_feature("hw.optional.arm.FEAT_DotProd");
    [[maybe_unused]] const bool bf16 = has_feature("hw.optional.arm.FEAT_BF16");
#else
    [[maybe_unused]] const bool dot = false, bf16 = false;
#endif
#if defined(HAS_NEON_BF16)
    if (dot && bf16) found.push_back(&neon_bf16);
#endif
#if defined(HAS_NEON_DOT)
    if (dot) found.push_back(&neon_dot);
#endif
    found.push_back(&neon);
#endif
    return found;
}
#endif

// Asked once: in a virtual machine, each CPUID takes microseconds.
const std::vector<const Kernels*>& supported() {
    static const std::vector<const Kernels*> found = find_supported();
    return found;
}

}  // namespace
}  // namespace elmo
