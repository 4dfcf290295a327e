#include "fma_peak.h"

#include <algorithm>
#include <cstdint>

#include "dpb_clock.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace
{

// Chains that do not wait for each other: latency 4 times 2 units, and some. Written out, because
// an array of them stays in memory where the compiler does not unroll.
constexpr int chains = 12;
constexpr int64_t rounds = 200000;

// The result leaves the loop through memory that the compiler must write.
volatile float sink;

__attribute__((target("avx512f"))) double run_avx512()
{
    const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f), one = _mm512_set1_ps(1.0f);
    __m512 s0 = one, s1 = one, s2 = one, s3 = one, s4 = one, s5 = one, s6 = one, s7 = one, s8 = one,
           s9 = one, s10 = one, s11 = one;

    for (int64_t i = 0; i < rounds; i++) {
        s0 = _mm512_fmadd_ps(s0, a, b);
        asm volatile("" : "+v"(s0));
        s1 = _mm512_fmadd_ps(s1, a, b);
        asm volatile("" : "+v"(s1));
        s2 = _mm512_fmadd_ps(s2, a, b);
        asm volatile("" : "+v"(s2));
        s3 = _mm512_fmadd_ps(s3, a, b);
        asm volatile("" : "+v"(s3));
        s4 = _mm512_fmadd_ps(s4, a, b);
        asm volatile("" : "+v"(s4));
        s5 = _mm512_fmadd_ps(s5, a, b);
        asm volatile("" : "+v"(s5));
        s6 = _mm512_fmadd_ps(s6, a, b);
        asm volatile("" : "+v"(s6));
        s7 = _mm512_fmadd_ps(s7, a, b);
        asm volatile("" : "+v"(s7));
        s8 = _mm512_fmadd_ps(s8, a, b);
        asm volatile("" : "+v"(s8));
        s9 = _mm512_fmadd_ps(s9, a, b);
        asm volatile("" : "+v"(s9));
        s10 = _mm512_fmadd_ps(s10, a, b);
        asm volatile("" : "+v"(s10));
        s11 = _mm512_fmadd_ps(s11, a, b);
        asm volatile("" : "+v"(s11));
    }
    sink = _mm512_cvtss_f32(s0) + _mm512_cvtss_f32(s1) + _mm512_cvtss_f32(s2) +
           _mm512_cvtss_f32(s3) + _mm512_cvtss_f32(s4) + _mm512_cvtss_f32(s5) +
           _mm512_cvtss_f32(s6) + _mm512_cvtss_f32(s7) + _mm512_cvtss_f32(s8) +
           _mm512_cvtss_f32(s9) + _mm512_cvtss_f32(s10) + _mm512_cvtss_f32(s11);
    return 2.0 * 16.0 * chains * rounds;
}

__attribute__((target("avx2,fma"))) double run_avx2()
{
    const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f), one = _mm256_set1_ps(1.0f);
    __m256 s0 = one, s1 = one, s2 = one, s3 = one, s4 = one, s5 = one, s6 = one, s7 = one, s8 = one,
           s9 = one, s10 = one, s11 = one;

    for (int64_t i = 0; i < rounds; i++) {
        s0 = _mm256_fmadd_ps(s0, a, b);
        asm volatile("" : "+x"(s0));
        s1 = _mm256_fmadd_ps(s1, a, b);
        asm volatile("" : "+x"(s1));
        s2 = _mm256_fmadd_ps(s2, a, b);
        asm volatile("" : "+x"(s2));
        s3 = _mm256_fmadd_ps(s3, a, b);
        asm volatile("" : "+x"(s3));
        s4 = _mm256_fmadd_ps(s4, a, b);
        asm volatile("" : "+x"(s4));
        s5 = _mm256_fmadd_ps(s5, a, b);
        asm volatile("" : "+x"(s5));
        s6 = _mm256_fmadd_ps(s6, a, b);
        asm volatile("" : "+x"(s6));
        s7 = _mm256_fmadd_ps(s7, a, b);
        asm volatile("" : "+x"(s7));
        s8 = _mm256_fmadd_ps(s8, a, b);
        asm volatile("" : "+x"(s8));
        s9 = _mm256_fmadd_ps(s9, a, b);
        asm volatile("" : "+x"(s9));
        s10 = _mm256_fmadd_ps(s10, a, b);
        asm volatile("" : "+x"(s10));
        s11 = _mm256_fmadd_ps(s11, a, b);
        asm volatile("" : "+x"(s11));
    }
    sink = _mm256_cvtss_f32(s0) + _mm256_cvtss_f32(s1) + _mm256_cvtss_f32(s2) +
           _mm256_cvtss_f32(s3) + _mm256_cvtss_f32(s4) + _mm256_cvtss_f32(s5) +
           _mm256_cvtss_f32(s6) + _mm256_cvtss_f32(s7) + _mm256_cvtss_f32(s8) +
           _mm256_cvtss_f32(s9) + _mm256_cvtss_f32(s10) + _mm256_cvtss_f32(s11);
    return 2.0 * 8.0 * chains * rounds;
}

} // namespace

double dpb_fma_peak_flops_per_s()
{
    double best = 0.0;

    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return 0.0;
    for (int i = 0; i < 8; i++) {
        int64_t begin_ns = dpb_clock_now_ns();
        double flops = __builtin_cpu_supports("avx512f") ? run_avx512() : run_avx2();

        best = std::max(best, 1e9 * flops / double(dpb_clock_now_ns() - begin_ns));
    }
    return best;
}

#else

double dpb_fma_peak_flops_per_s()
{
    return 0.0;
}

#endif
