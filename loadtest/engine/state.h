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
    int connection_count, values_every, epoll, payload_count;
    request *requests;
    connection *connections;
    connection **idle;
    int idle_count;
    queue in_flight, paused, ready;
    int users, closed_busy, paused_count; /* closed-loop connections: held, in flight, paused */
    uint64_t query;
    pthread_t thread;
    bool running;
    _Atomic int wanted_users, together, flying, stopping;
    _Atomic int64_t end_ns, remaining, fixed_due, lost, waiting_bytes;
    record *ring;
    _Atomic uint64_t head, tail; /* written by the engine, read by Python */
    int64_t *due;
    uint32_t *due_payload;
    _Atomic uint64_t due_head, due_tail; /* written by Python, read by the engine */
};

static inline int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* The thread's body, and the end of one request; in engine.c. */
void *engine_run(void *given);
void engine_finish(engine *e, connection *c, enum outcome outcome, int64_t now);
void disconnect(connection *c);

#endif
