/* utf8.h (private): what is valid UTF-8. */
#ifndef DPB_UTF8_H
#define DPB_UTF8_H

#include <stddef.h>

/* Bytes of the valid UTF-8 sequence at `text`, of which `count` bytes may be read, or 0 when it is
 * none. RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. Of a terminated text
 * only the terminator is read beyond the sequence, so SIZE_MAX will do for it. */
size_t dpb_utf8_length(const char *text, size_t count);

#endif
