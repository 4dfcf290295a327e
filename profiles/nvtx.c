#include "nvtx.h"

#include <stdlib.h>

#define INJECTION "NVTX_INJECTION64_PATH"

bool nvtx_offer(const char *path)
{
    return setenv(INJECTION, path, 0) == 0;
}

#ifdef DPB_HAVE_NVTX

#include <pthread.h>

#include <nvtx3/nvToolsExt.h>

static nvtxDomainHandle_t domain;
static pthread_once_t domain_once = PTHREAD_ONCE_INIT;

static void open_domain(void)
{
    domain = nvtxDomainCreateA("dpbench");
    for (int kind = 0; kind < DPB_EVENT_KIND_COUNT; kind++)
        nvtxDomainNameCategoryA(domain, (uint32_t)kind + 1, /* 0 is no category */
                                dpb_event_kind_text((enum dpb_event_kind)kind));
}

bool nvtx_is_built_in(void)
{
    return true;
}

void nvtx_begin(enum dpb_event_kind kind, const char *name, int32_t bucket)
{
    nvtxEventAttributes_t attributes = {
            .version = NVTX_VERSION,
            .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
            .category = (uint32_t)kind + 1,
            .payloadType = bucket == -1 ? NVTX_PAYLOAD_UNKNOWN : NVTX_PAYLOAD_TYPE_INT32,
            .payload.iValue = bucket,
            .messageType = NVTX_MESSAGE_TYPE_ASCII,
            .message.ascii = name,
    };

    pthread_once(&domain_once, open_domain);
    nvtxDomainRangePushEx(domain, &attributes);
}

void nvtx_end(void)
{
    pthread_once(&domain_once, open_domain);
    nvtxDomainRangePop(domain);
}

#else

bool nvtx_is_built_in(void)
{
    return false;
}

void nvtx_begin(enum dpb_event_kind kind, const char *name, int32_t bucket)
{
    (void)kind;
    (void)name;
    (void)bucket;
}

void nvtx_end(void)
{
}

#endif
