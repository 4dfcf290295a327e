/* A tool as NVTX loads it: writes down what ranges it is told of. Tests only.
 *
 * nvtx_seen() gives a line per call: "category CATEGORY NUMBER", "push DOMAIN CATEGORY PAYLOAD
 * NAME" with payload "-" for none, "pop DOMAIN". */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <nvtx3/nvToolsExt.h>

#define DOMAINS 8

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);
__attribute__((visibility("default"))) const char *nvtx_seen(void);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char seen[1 << 18];
static size_t seen_length;
static char domains[DOMAINS][32];
static int domain_count;

const char *nvtx_seen(void)
{
    return seen;
}

static void write_down(const char *line)
{
    const size_t length = strlen(line);

    pthread_mutex_lock(&mutex);
    if (seen_length + length < sizeof(seen)) {
        memcpy(seen + seen_length, line, length + 1);
        seen_length += length;
    }
    pthread_mutex_unlock(&mutex);
}

static const char *name_of(nvtxDomainHandle_t domain)
{
    return domain ? (const char *)domain : "default";
}

static nvtxDomainHandle_t NVTX_API create_domain(const char *name)
{
    char *kept = domains[domain_count++ % DOMAINS];

    snprintf(kept, sizeof(domains[0]), "%s", name);
    return (nvtxDomainHandle_t)(void *)kept;
}

static void NVTX_API name_category(nvtxDomainHandle_t domain, uint32_t category, const char *name)
{
    char line[128];

    (void)domain;
    snprintf(line, sizeof(line), "category %u %s\n", category, name);
    write_down(line);
}

static int NVTX_API push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes)
{
    char line[256], payload[16] = "-";

    if (attributes->payloadType == NVTX_PAYLOAD_TYPE_INT32)
        snprintf(payload, sizeof(payload), "%d", (int)attributes->payload.iValue);
    snprintf(line, sizeof(line), "push %s %u %s %s\n", name_of(domain), attributes->category,
             payload,
             attributes->messageType == NVTX_MESSAGE_TYPE_ASCII ? attributes->message.ascii : "?");
    write_down(line);
    return 0;
}

static int NVTX_API pop(nvtxDomainHandle_t domain)
{
    char line[64];

    snprintf(line, sizeof(line), "pop %s\n", name_of(domain));
    write_down(line);
    return 0;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
    const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table;
    unsigned count;

    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &count) ||
        count <= NVTX_CBID_CORE2_DomainCreateA)
        return 0;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create_domain;
    *table[NVTX_CBID_CORE2_DomainNameCategoryA] = (NvtxFunctionPointer)name_category;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
