/* cpu_ops.h: what test_cpu_ops.c runs of other files, one for each kind of operator. */
#ifndef DPB_CPU_OPS_H
#define DPB_CPU_OPS_H

/* cpu_ops_conv.c */
void test_conv(void **state);
void test_conv_algorithm_auto(void **state);
void test_kernels_share_buffers(void **state);
void test_pool(void **state);

/* cpu_ops_batchnorm.c */
void test_batchnorm(void **state);
void test_batchnorm_threads_change_no_bit(void **state);
void test_batchnorm_residual_in_place(void **state);
void test_batchnorm_statistics_do_not_cancel(void **state);

/* cpu_ops_cast.c */
void test_cast(void **state);
void test_cast_of_special_values(void **state);
void test_cast_of_special_values_to_fp16(void **state);

#endif
