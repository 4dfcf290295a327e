/* net_log.h: what this program has logged, as one text. */
#ifndef DPB_NET_TEST_LOG_H
#define DPB_NET_TEST_LOG_H

#include <pthread.h>

#include "dpb_log.h"
#include "dpb_test.h"

#define NET_LOG_BYTES 65536

static char net_log[NET_LOG_BYTES];

static pthread_mutex_t net_log_lock = PTHREAD_MUTEX_INITIALIZER;

static void net_log_keep(void *context, enum dpb_log_level level, const char *line)
{
    (void)context;
    (void)level;
    pthread_mutex_lock(&net_log_lock);
    const size_t length = strlen(net_log);
    snprintf(net_log + length, sizeof(net_log) - length, "%s\n", line);
    pthread_mutex_unlock(&net_log_lock);
}

static bool net_log_has(const char *text)
{
    pthread_mutex_lock(&net_log_lock);
    const bool has = *text ? strstr(net_log, text) != NULL : net_log[0] == '\0';
    pthread_mutex_unlock(&net_log_lock);
    return has;
}

static int net_log_begin(void **state)
{
    (void)state;
    net_log[0] = '\0';
    dpb_log_set_level(DPB_LOG_DEBUG);
    dpb_log_set_sink(net_log_keep, NULL);
    return 0;
}

#define assert_logged(text)                                                                        \
    do {                                                                                           \
        if (!net_log_has(text))                                                                    \
            fail_msg("\"%s\" is not in the log:\n%s", (text), net_log);                            \
    } while (0)

#define assert_nothing_logged() assert_logged("")

#define assert_not_logged(text)                                                                    \
    do {                                                                                           \
        if (net_log_has(text))                                                                     \
            fail_msg("\"%s\" is in the log:\n%s", (text), net_log);                                \
    } while (0)

#endif
