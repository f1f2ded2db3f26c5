/* HTTP/1.1 replies (RFC 9112): where the body lies, and whether the connection may be used again.
 *
 * A reply is fed by letting the buffer grow; `reply_parse` is called after each growth and never
 * reads past `length`. A chunked body is moved together in place.
 */
#ifndef INFERSWEEP_REPLY_H
#define INFERSWEEP_REPLY_H

#define _GNU_SOURCE
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

enum { REPLY_MORE, REPLY_WHOLE, REPLY_BROKEN };
enum { MAX_HEAD_BYTES = 65536 };

typedef struct {
    int status;
    bool keep_alive, chunked, until_close;
    int64_t content_length; /* -1 when not given */
    int64_t json_length;    /* Inference-Header-Content-Length, -1 when not given */
    size_t body;            /* offset of the body; 0 while the head is not whole */
    size_t body_length;     /* decoded so far */
    size_t next_chunk;      /* offset of the next chunk's size line */
} reply;

static inline void reply_reset(reply *r)
{
    *r = (reply){.content_length = -1, .json_length = -1};
}

/* Decimal digits only, at most 18 of them; -1 for anything else. */
static int64_t digits(const char *text, size_t length)
{
    int64_t value = 0;
    if (length == 0 || length > 18)
        return -1;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = value * 10 + (text[i] - '0');
    }
    return value;
}

static bool named(const char *line, size_t name_length, const char *name)
{
    return strlen(name) == name_length && strncasecmp(line, name, name_length) == 0;
}

static bool holds(const char *value, size_t length, const char *word)
{
    size_t size = strlen(word);
    for (size_t i = 0; i + size <= length; i++)
        if (strncasecmp(value + i, word, size) == 0)
            return true;
    return false;
}

static bool parse_field(reply *r, const char *line, size_t length)
{
    const char *colon = memchr(line, ':', length);
    if (!colon || colon == line)
        return false;
    size_t name_length = colon - line;
    const char *value = colon + 1, *end = line + length;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    size_t size = end - value;
    if (named(line, name_length, "content-length")) {
        int64_t given = digits(value, size);
        if (given < 0 || (r->content_length >= 0 && r->content_length != given))
            return false;
        r->content_length = given;
    } else if (named(line, name_length, "transfer-encoding")) {
        if (size != 7 || strncasecmp(value, "chunked", 7) != 0)
            return false;
        r->chunked = true;
    } else if (named(line, name_length, "connection")) {
        if (holds(value, size, "close"))
            r->keep_alive = false;
        else if (holds(value, size, "keep-alive"))
            r->keep_alive = true;
    } else if (named(line, name_length, "inference-header-content-length")) {
        r->json_length = digits(value, size);
        return r->json_length >= 0 && r->json_length <= INT32_MAX;
    }
    return true;
}

static inline int parse_head(reply *r, const char *data, size_t length)
{
    const char *end = memmem(data, length, "\r\n\r\n", 4);
    if (!end)
        return length > MAX_HEAD_BYTES ? REPLY_BROKEN : REPLY_MORE;
    const char *line = data, *stop = memmem(data, length, "\r\n", 2);
    if (stop - line < 12 || memcmp(line, "HTTP/1.", 7) != 0 || line[8] != ' ')
        return REPLY_BROKEN;
    r->keep_alive = line[7] == '1';
    r->status = (int)digits(line + 9, 3);
    if (r->status < 200 || (stop - line > 12 && line[12] != ' '))
        return REPLY_BROKEN; /* interim replies are never asked for */
    while (stop < end) {
        line = stop + 2;
        stop = memmem(line, data + length - line, "\r\n", 2);
        if (!parse_field(r, line, stop - line))
            return REPLY_BROKEN;
    }
    if (r->chunked && r->content_length >= 0)
        return REPLY_BROKEN;
    r->body = r->next_chunk = end + 4 - data;
    r->until_close = !r->chunked && r->content_length < 0 && r->status != 204 && r->status != 304;
    if (r->until_close)
        r->keep_alive = false;
    return REPLY_WHOLE;
}

static int64_t chunk_size(const char *line, size_t length)
{
    int64_t size = 0;
    size_t i = 0;
    for (; i < length && line[i] != ';' && line[i] != ' '; i++) {
        int digit = line[i] >= '0' && line[i] <= '9'   ? line[i] - '0'
                    : line[i] >= 'a' && line[i] <= 'f' ? line[i] - 'a' + 10
                    : line[i] >= 'A' && line[i] <= 'F' ? line[i] - 'A' + 10
                                                       : -1;
        if (digit < 0 || i >= 12)
            return -1;
        size = size * 16 + digit;
    }
    return i ? size : -1;
}

/* Moves whole chunks together behind the head. Trailer fields are skipped. */
static inline int parse_chunks(reply *r, char *data, size_t length)
{
    for (;;) {
        char *line = data + r->next_chunk;
        char *stop = memmem(line, data + length - line, "\r\n", 2);
        if (!stop)
            return REPLY_MORE;
        int64_t size = chunk_size(line, stop - line);
        if (size < 0)
            return REPLY_BROKEN;
        size_t start = stop + 2 - data;
        if (size == 0) {
            if (length - start >= 2 && memcmp(data + start, "\r\n", 2) == 0)
                return REPLY_WHOLE;
            return memmem(data + start, length - start, "\r\n\r\n", 4) ? REPLY_WHOLE : REPLY_MORE;
        }
        if (length - start < (size_t)size + 2)
            return REPLY_MORE;
        if (memcmp(data + start + size, "\r\n", 2) != 0)
            return REPLY_BROKEN;
        memmove(data + r->body + r->body_length, data + start, size);
        r->body_length += size;
        r->next_chunk = start + size + 2;
    }
}

/* `closed`: the peer has sent its last byte. */
static inline int reply_parse(reply *r, char *data, size_t length, bool closed)
{
    if (!r->body) {
        int head = parse_head(r, data, length);
        if (head != REPLY_WHOLE)
            return closed ? REPLY_BROKEN : head;
    }
    if (r->chunked) {
        int body = parse_chunks(r, data, length);
        return body == REPLY_MORE && closed ? REPLY_BROKEN : body;
    }
    r->body_length = length - r->body;
    if (r->until_close)
        return closed ? REPLY_WHOLE : REPLY_MORE;
    size_t wanted = r->content_length > 0 ? (size_t)r->content_length : 0;
    if (r->body_length > wanted)
        return REPLY_BROKEN; /* nothing was asked for beyond this reply */
    return r->body_length == wanted ? REPLY_WHOLE : closed ? REPLY_BROKEN : REPLY_MORE;
}

#endif
