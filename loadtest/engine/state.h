/* The engine's state: connections in queues, and rings that one side writes and the other reads. */
#ifndef INFERSWEEP_STATE_H
#define INFERSWEEP_STATE_H

#include "reply.h"

#include "engine.h"

#include <netdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum {
    RING = 1 << 17,
    SCHEDULE = 1 << 17,
    RIGHT_REPLIES = 16,
    EVENTS = 256,
    LEAST_READ = 1 << 14,
};
#define PAUSE_NS 50000000LL          /* a dead server is asked 20 times a second, not 100,000 */
#define LONGEST_WAIT_NS 5000000LL    /* so soon is a command of Python seen */
#define WAITING_BYTES (64LL << 20)   /* reply bodies that may wait for Python */

typedef struct {
    char *body;
    uint32_t length;
    int32_t json_length;
} right_reply;

typedef struct {
    char *bytes;
    size_t length;
    uint64_t answers;
    right_reply right[RIGHT_REPLIES];
    _Atomic int right_count;
} request;

/* An arrival whose stream still waits for a reply. */
typedef struct frame {
    int64_t due;
    uint32_t payload;
    struct frame *next;
} frame;

typedef struct connection {
    int fd;
    bool closed_loop, in_flight, paused, wants_write;
    uint32_t payload;
    uint64_t turn;
    record now;
    int64_t until; /* time limit in flight, or end of a pause */
    size_t written;
    char *data;
    size_t length, capacity;
    reply parsed;
    frame *held, *last_held; /* in the order they were due */
    struct connection *previous, *next;
} connection;

/* Connections in the order of their `until`; every member waits equally long. */
typedef struct {
    connection *first, *last;
} queue;

struct engine {
    struct addrinfo *address;
    int64_t timeout_ns;
    uint64_t seed;
    int connection_count, values_every, epoll, payload_count, streams;
    bool latest_only;
    int64_t drop_after_ns; /* 0 for never */
    request *requests;
    connection *connections;
    connection **idle;
    int idle_count;
    queue in_flight, paused, ready;
    int users, closed_busy, paused_count; /* closed-loop connections: held, in flight, paused */
    uint64_t query;
    pthread_t thread;
    bool running;
    _Atomic int wanted_users, together, flying, stopping, giving_up;
    _Atomic int64_t end_ns, remaining, fixed_due, lost, waiting_bytes, held;
    record *ring;
    _Atomic uint64_t head, tail; /* written by the engine, read by Python */
    int64_t *due;
    uint32_t *due_payload;
    _Atomic uint64_t due_head, due_tail; /* written by Python, read by the engine */
};

static inline void append(queue *q, connection *c)
{
    c->next = NULL;
    c->previous = q->last;
    *(q->last ? &q->last->next : &q->first) = c;
    q->last = c;
}

static inline void take_out(queue *q, connection *c)
{
    *(c->previous ? &c->previous->next : &q->first) = c->next;
    *(c->next ? &c->next->previous : &q->last) = c->previous;
}

static inline int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* The thread's body, and the end of one request; in engine.c. */
void *engine_run(void *given);
void engine_finish(engine *e, connection *c, enum outcome outcome, int64_t now);
void engine_miss(engine *e, int64_t due, uint32_t payload, enum outcome outcome, int64_t now);
void disconnect(connection *c);

/* In turns.c. With streams, connection i has the i-th list of requests. */
uint32_t next_payload(engine *e, connection *c);
connection *stream_of(engine *e, uint32_t payload);
void hold(engine *e, connection *c, int64_t due, uint32_t payload);
frame take_held(connection *c); /* of a connection that holds some; the caller counts it off */
void give_up_held(engine *e); /* while nothing is ready */
bool too_late(engine *e, int64_t due, int64_t now);

#endif
