/* utf8.h (private): what is valid UTF-8. */
#ifndef DPB_UTF8_H
#define DPB_UTF8_H

#include <stddef.h>

/* Bytes of the valid UTF-8 sequence at `text` (terminated), or 0 when it is none. RFC 3629: no
 * overlong forms, no surrogates, nothing above U+10FFFF. */
size_t dpb_utf8_length(const char *text);

#endif
