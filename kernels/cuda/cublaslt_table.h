/* cublaslt_table.h: cuBLASLt as a table of functions. Private to kernels/cuda.
 * (Not "cublaslt.h": too near the name of the library's.) */
#ifndef DPB_CUDA_CUBLASLT_TABLE_H
#define DPB_CUDA_CUBLASLT_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include <cublasLt.h>

#include "dpb_status.h"

/* Members have the functions' own names (cublasLt.h documents them). */
struct dpb_cublaslt {
    size_t (*cublasLtGetVersion)(void);
    const char *(*cublasLtGetStatusName)(cublasStatus_t status);
    cublasStatus_t (*cublasLtCreate)(cublasLtHandle_t *handle);
    cublasStatus_t (*cublasLtDestroy)(cublasLtHandle_t handle);
    cublasStatus_t (*cublasLtMatmulDescCreate)(cublasLtMatmulDesc_t *desc,
                                               cublasComputeType_t compute, cudaDataType_t scale);
    cublasStatus_t (*cublasLtMatmulDescDestroy)(cublasLtMatmulDesc_t desc);
    cublasStatus_t (*cublasLtMatmulDescSetAttribute)(cublasLtMatmulDesc_t desc,
                                                     cublasLtMatmulDescAttributes_t name,
                                                     const void *value, size_t bytes);
    cublasStatus_t (*cublasLtMatrixLayoutCreate)(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                                 uint64_t rows, uint64_t columns, int64_t ld);
    cublasStatus_t (*cublasLtMatrixLayoutDestroy)(cublasLtMatrixLayout_t layout);
    cublasStatus_t (*cublasLtMatrixLayoutSetAttribute)(cublasLtMatrixLayout_t layout,
                                                       cublasLtMatrixLayoutAttribute_t name,
                                                       const void *value, size_t bytes);
    cublasStatus_t (*cublasLtMatmulPreferenceCreate)(cublasLtMatmulPreference_t *preference);
    cublasStatus_t (*cublasLtMatmulPreferenceDestroy)(cublasLtMatmulPreference_t preference);
    cublasStatus_t (*cublasLtMatmulPreferenceSetAttribute)(
            cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t name,
            const void *value, size_t bytes);
    cublasStatus_t (*cublasLtMatmulAlgoGetHeuristic)(
            cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
            cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
            cublasLtMatmulPreference_t preference, int requested,
            cublasLtMatmulHeuristicResult_t results[], int *returned);
    cublasStatus_t (*cublasLtMatmul)(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                     const void *alpha, const void *a, cublasLtMatrixLayout_t a_of,
                                     const void *b, cublasLtMatrixLayout_t b_of, const void *beta,
                                     const void *c, cublasLtMatrixLayout_t c_of, void *d,
                                     cublasLtMatrixLayout_t d_of, const cublasLtMatmulAlgo_t *algo,
                                     void *workspace, size_t workspace_bytes, cudaStream_t stream);
};

/* Open libcublasLt.so.13 (or what DPB_CUBLASLT_LIBRARY names) and fill `table`.
 * DPB_ERR_UNAVAILABLE with one line in `why`: not found, not loadable, or of another major version.
 * Loading it takes some tenths of a second. */
dpb_status dpb_cublaslt_open(struct dpb_cublaslt *table, char *why, size_t why_bytes);

/* From here on, dpb_cublaslt_open() gives a copy of this table instead; NULL ends that. For tests.
 */
void dpb_cublaslt_use(const struct dpb_cublaslt *table);

/* "13.1.0" of cublasLtGetVersion()'s number. */
void dpb_cublaslt_version_text(size_t version, char *text, size_t bytes);

/* DPB_OK for CUBLAS_STATUS_SUCCESS; else logs "cuda: `what`: `call`: NAME" with a hint, and
 * returns DPB_ERR_NO_MEMORY, DPB_ERR_UNSUPPORTED or DPB_ERR_VENDOR by the status. */
dpb_status dpb_cublaslt_check(const struct dpb_cublaslt *lt, cublasStatus_t status,
                              const char *call, const char *what);

#endif
