/* fake_cublaslt.h: cuBLASLt's table for tests without a GPU. A product is put on the stream of the
 * faked runtime (fake_cudart.h) and computed in double from what the descriptors say, column-major,
 * so that a wrong layout or transposition gives wrong numbers. What cublasLt.h documents as not
 * supported is refused; an algorithm serves only what it was proposed for. */
#ifndef DPB_FAKE_CUBLASLT_H
#define DPB_FAKE_CUBLASLT_H

#include "cublaslt_table.h"

extern const struct dpb_cublaslt fake_cublaslt;

/* Products launched since the program's start. */
int64_t fake_cublaslt_products(void);

#endif
