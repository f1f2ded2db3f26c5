/* What Python calls; everything but `engine_stop` and `engine_free` is safe while the thread runs. */
#include "state.h"

#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

engine *engine_new(const char *ip, const char *port, int64_t timeout_ns, uint64_t seed,
                   int connections, int values_every, int streams)
{
    engine *e = calloc(1, sizeof *e);
    if (!e)
        return NULL;
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    e->timeout_ns = timeout_ns;
    e->seed = seed;
    e->values_every = values_every;
    e->streams = streams;
    e->connection_count = connections;
    e->remaining = e->fixed_due = -1;
    e->end_ns = INT64_MAX;
    e->epoll = epoll_create1(EPOLL_CLOEXEC);
    e->connections = calloc(connections, sizeof *e->connections);
    e->idle = calloc(connections, sizeof *e->idle);
    e->ring = malloc(RING * sizeof *e->ring);
    e->due = malloc(SCHEDULE * sizeof *e->due);
    e->due_payload = malloc(SCHEDULE * sizeof *e->due_payload);
    if (getaddrinfo(ip, port, &hints, &e->address) != 0 || e->epoll < 0 || !e->connections ||
        !e->idle || !e->ring || !e->due || !e->due_payload) {
        engine_free(e);
        return NULL;
    }
    for (int i = connections - 1; i >= 0; i--) {
        e->connections[i].fd = -1;
        e->idle[e->idle_count++] = &e->connections[i];
    }
    return e;
}

static char *copy_of(const char *bytes, uint64_t length)
{
    char *copy = malloc(length + 1);
    return copy ? memcpy(copy, bytes, length) : NULL;
}

int engine_add_request(engine *e, const char *bytes, uint64_t length)
{
    request *grown = realloc(e->requests, (e->payload_count + 1) * sizeof *grown);
    if (!grown)
        return -1;
    e->requests = grown;
    grown[e->payload_count] = (request){.bytes = copy_of(bytes, length), .length = length};
    return grown[e->payload_count].bytes ? e->payload_count++ : -1;
}

int engine_add_right(engine *e, int payload, const char *body, uint32_t length, int32_t json_length)
{
    request *q = &e->requests[payload];
    int count = q->right_count;
    char *copy = count < RIGHT_REPLIES ? copy_of(body, length) : NULL;
    if (!copy)
        return 0;
    q->right[count] = (right_reply){copy, length, json_length};
    atomic_store_explicit(&q->right_count, count + 1, memory_order_release);
    return 1;
}

void engine_frames(engine *e, int latest_only, int64_t drop_after_ns)
{
    e->latest_only = latest_only;
    e->drop_after_ns = drop_after_ns;
}

int engine_start(engine *e)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    e->running = pthread_create(&e->thread, NULL, engine_run, e) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e->running;
}

void engine_users(engine *e, int users, int together)
{
    e->together = together;
    e->wanted_users = users < e->connection_count ? users : e->connection_count;
}

void engine_limit(engine *e, int64_t requests, int64_t due)
{
    e->fixed_due = due;
    e->remaining = requests;
}

int64_t engine_schedule(engine *e, const int64_t *due, const uint32_t *payload, int64_t count)
{
    uint64_t head = e->due_head;
    int64_t room = SCHEDULE - (head - atomic_load_explicit(&e->due_tail, memory_order_acquire));
    int64_t taken = count < room ? count : room;
    for (int64_t i = 0; i < taken; i++, head++) {
        e->due[head % SCHEDULE] = due[i];
        e->due_payload[head % SCHEDULE] = payload[i];
    }
    atomic_store_explicit(&e->due_head, head, memory_order_release);
    return taken;
}

void engine_end(engine *e, int64_t end_ns) { e->end_ns = end_ns; }

void engine_give_up(engine *e) { e->giving_up = 1; }

int64_t engine_drain(engine *e, record *out, int64_t room)
{
    uint64_t tail = e->tail, head = atomic_load_explicit(&e->head, memory_order_acquire);
    int64_t count = 0;
    for (; tail < head && count < room; tail++)
        out[count++] = e->ring[tail % RING];
    atomic_store_explicit(&e->tail, tail, memory_order_release);
    return count;
}

void engine_release(engine *e, uint64_t body, uint32_t length)
{
    free((void *)body);
    e->waiting_bytes -= length;
}

int engine_in_flight(engine *e) { return e->flying; }

int64_t engine_waiting(engine *e) { return (int64_t)(e->due_head - e->due_tail) + e->held; }

int64_t engine_lost(engine *e) { return e->lost; }

void engine_stop(engine *e)
{
    e->stopping = 1;
    if (e->running)
        pthread_join(e->thread, NULL);
    e->running = false;
    e->wanted_users = 0;
    e->end_ns = 0;
    while (e->in_flight.first)
        engine_finish(e, e->in_flight.first, UNFINISHED, now_ns());
    give_up_held(e);
}

void engine_free(engine *e)
{
    for (int i = 0; i < e->payload_count; i++) {
        for (int k = 0; k < e->requests[i].right_count; k++)
            free(e->requests[i].right[k].body);
        free(e->requests[i].bytes);
    }
    for (int i = 0; e->connections && i < e->connection_count; i++) {
        disconnect(&e->connections[i]);
        free(e->connections[i].data);
    }
    if (e->address)
        freeaddrinfo(e->address);
    if (e->epoll >= 0)
        close(e->epoll);
    free(e->requests);
    free(e->connections);
    free(e->idle);
    free(e->ring);
    free(e->due);
    free(e->due_payload);
    free(e);
}
