/* What Python sees of the native engine; `native.py` mirrors this file. */
#ifndef INFERSWEEP_ENGINE_H
#define INFERSWEEP_ENGINE_H

#include <stdint.h>

/* The order of loadtest.results.OUTCOMES. */
enum outcome {
    OK, WRONG_ANSWER, CLIENT_FAULT, SERVER_FAULT, TIMEOUT, CONNECTION_ERROR, UNFINISHED, NOT_SENT,
    DROPPED
};

/* How sure the engine itself is of an answer with status 200. */
enum checked {
    EXACT,     /* every byte equals a reply that was found right */
    DESCRIBED, /* its JSON part and its length do; values not compared */
    PENDING,   /* `body` waits for Python to judge it, and must be released */
    UNCHECKED  /* too many were waiting already */
};

/* Times are CLOCK_MONOTONIC in nanoseconds. */
typedef struct {
    int64_t due, sent, first_byte, done;
    uint64_t query; /* shared by the requests of one multi-stream query */
    uint64_t body;  /* address of a copy of the reply's body, 0 for none */
    uint32_t body_length;
    int32_t json_length;
    uint32_t payload;
    uint16_t status;
    uint8_t outcome, checked;
} record;

typedef struct engine engine;

/* With `streams` the requests are so many lists of equal length, one after the other; each has a
 * connection of its own, which sends one request at a time. */
engine *engine_new(const char *ip, const char *port, int64_t timeout_ns, uint64_t seed,
                   int connections, int values_every, int streams);
int engine_add_request(engine *e, const char *bytes, uint64_t length);
int engine_add_right(engine *e, int payload, const char *body, uint32_t length, int32_t json_length);
/* Of frames whose stream waits for a reply: with `latest_only` the next one takes the place of the
 * one that waits; one that is `drop_after_ns` old when its turn comes is dropped, 0 for none. */
void engine_frames(engine *e, int latest_only, int64_t drop_after_ns);
int engine_start(engine *e);

/* Closed loop: `users` connections, each due when its last reply was whole. With `together` they
 * form one query: the next is due when all replies of the last are whole. Streams go through their
 * lists in order, from the first when they are taken up. */
void engine_users(engine *e, int users, int together);
/* At most this many closed-loop requests from now on, all due at `due`; -1 lifts both. */
void engine_limit(engine *e, int64_t requests, int64_t due);
/* Open loop: append arrivals, in order; returns how many there was room for. One that is due while
 * its stream waits for a reply is sent after it, or dropped. */
int64_t engine_schedule(engine *e, const int64_t *due, const uint32_t *payload, int64_t count);
/* No request that is due at or after this moment is sent. */
void engine_end(engine *e, int64_t end_ns);
/* What waits for its stream's reply becomes NOT_SENT, soon. */
void engine_give_up(engine *e);

int64_t engine_drain(engine *e, record *out, int64_t room);
void engine_release(engine *e, uint64_t body, uint32_t length);
int engine_in_flight(engine *e);
int64_t engine_waiting(engine *e); /* scheduled arrivals that were not sent yet */
int64_t engine_lost(engine *e);    /* records that found the ring full */
void engine_stop(engine *e);       /* what is in flight becomes UNFINISHED */
void engine_free(engine *e);

#endif
