/* For LD_PRELOAD by bench/peers/compare: MKL, which PyTorch's wheels link, chooses AVX2 matrix
 * multiplications on AMD's AVX-512 cores unless it takes them for Intel's; on a Zen 5 that costs it
 * more than half of its speed. */
int mkl_serv_intel_cpu_true(void);

int mkl_serv_intel_cpu_true(void)
{
    return 1;
}
