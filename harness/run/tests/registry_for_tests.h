#ifndef REGISTRY_FOR_TESTS_H
#define REGISTRY_FOR_TESTS_H

#include "dpb_registry.h"

const struct dpb_registry *registry_for_tests(void);

#endif
