// fma_peak.h: the fp32 rate of one core, which operators are compared with.
#ifndef DPB_FMA_PEAK_H
#define DPB_FMA_PEAK_H

// Floating-point operations per second of one thread that does nothing but fused multiply-adds in
// registers, the widest this CPU has: the best of a few short runs. 0 where it cannot be measured
// (no AVX2 with FMA).
double dpb_fma_peak_flops_per_s();

#endif
