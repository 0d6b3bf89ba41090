// Stands in for NCCL in tests: the processes are threads, and the memory of the device is that of
// the host. Sums are made in the order of ranks. Checks its arguments as NCCL does.
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#ifndef NCCL_H_
typedef enum {
    ncclSuccess = 0, ncclInvalidArgument = 4, ncclInvalidUsage = 5, ncclRemoteError = 6,
    ncclInProgress = 7
} ncclResult_t;
typedef enum { ncclFloat32 = 7, ncclFloat64 = 8 } ncclDataType_t;
typedef enum { ncclSum = 0 } ncclRedOp_t;
typedef struct { char internal[128]; } ncclUniqueId;
typedef struct ncclComm* ncclComm_t;
typedef struct CUstream_st* cudaStream_t;
// Of version 2.14.
typedef struct { size_t size; unsigned magic; unsigned version; int blocking; } ncclConfig_t;
#endif

struct Operation {
    bool sums;
    void* buffer;
    size_t count;
    ncclDataType_t type;
    int root;
};

struct Connection {
    int size, joined = 0;
    bool is_broken = false;
    // By number of the exchange and rank.
    std::map<long, std::map<int, std::vector<Operation>>> exchanges;
};

struct ncclComm {
    std::shared_ptr<Connection> connection;
    int rank;
    long exchanges = 0;
};

static std::mutex lock;
static std::map<std::string, std::shared_ptr<Connection>> connections;
static char next_id = 1;
static thread_local bool in_group = false;
static thread_local ncclComm_t group_comm = nullptr;
static thread_local std::vector<Operation> group;

template <class T> static void add(std::map<int, std::vector<Operation>>& ranks, size_t index) {
    for (size_t at = 0; at < ranks[0][index].count; at++) {
        T sum = static_cast<T*>(ranks[0][index].buffer)[at];
        for (size_t rank = 1; rank < ranks.size(); rank++)
            sum += static_cast<T*>(ranks[rank][index].buffer)[at];
        for (auto& [rank, operations] : ranks) static_cast<T*>(operations[index].buffer)[at] = sum;
    }
}

static void exchange(std::map<int, std::vector<Operation>>& ranks) {
    for (size_t index = 0; index < ranks[0].size(); index++) {
        Operation first = ranks[0][index];
        if (first.sums) {
            first.type == ncclFloat32 ? add<float>(ranks, index) : add<double>(ranks, index);
            continue;
        }
        size_t bytes = first.count * (first.type == ncclFloat32 ? 4 : 8);
        for (auto& [rank, operations] : ranks)
            if (rank != first.root)
                std::memcpy(operations[index].buffer, ranks[first.root][index].buffer, bytes);
    }
}

static ncclResult_t add_operation(ncclComm_t comm, Operation operation, const void* from, void* to) {
    bool is_known = operation.type == ncclFloat32 || operation.type == ncclFloat64;
    if (from != to || !is_known) return ncclInvalidArgument;
    if (!in_group) return ncclInvalidUsage;
    group_comm = comm;
    group.push_back(operation);
    return ncclSuccess;
}

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
#ifdef STAND_IN_VERSION
    *version = STAND_IN_VERSION;
#else
    *version = 22803;
#endif
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    std::lock_guard<std::mutex> guard(lock);
    std::memset(id, 0, sizeof *id);
    id->internal[127] = next_id++;
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
    bool is_old = config->size == 24 && config->version == 21400;
    if (config->magic != 0xcafebeef || !is_old || config->blocking != 0) return ncclInvalidArgument;
    if (rank < 0 || rank >= size || id.internal[0] != 0) return ncclInvalidArgument;
    std::lock_guard<std::mutex> guard(lock);
    auto& connection = connections[std::string(id.internal, sizeof id.internal)];
    if (!connection) connection = std::make_shared<Connection>(Connection{size});
    if (connection->size != size) return ncclInvalidUsage;
    connection->joined++;
    *comm = new ncclComm{connection, rank};
    return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
    std::lock_guard<std::mutex> guard(lock);
    Connection& connection = *comm->connection;
    auto running = connection.exchanges.find(comm->exchanges);
    bool is_running = running != connection.exchanges.end();
    *state = connection.is_broken                       ? ncclRemoteError
             : connection.joined < connection.size      ? ncclInProgress
             : is_running && !running->second.empty()   ? ncclInProgress
                                                        : ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    std::lock_guard<std::mutex> guard(lock);
    comm->connection->is_broken = true;
    comm->connection->exchanges.clear();
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
    in_group = true;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    in_group = false;
    if (!group_comm) return ncclSuccess;
    std::lock_guard<std::mutex> guard(lock);
    Connection& connection = *group_comm->connection;
    auto& ranks = connection.exchanges[++group_comm->exchanges];
    ranks[group_comm->rank] = std::move(group);
    group.clear();
    group_comm = nullptr;
    if (connection.is_broken) return ncclRemoteError;
    if (ranks.size() < static_cast<size_t>(connection.size)) return ncclInProgress;
    exchange(ranks);
    ranks.clear();
    return ncclInProgress;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t) {
    if (op != ncclSum) return ncclInvalidArgument;
    return add_operation(comm, {true, to, count, type, 0}, from, to);
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t) {
    return add_operation(comm, {false, to, count, type, root}, from, to);
}

const char* ncclGetErrorString(ncclResult_t result) {
    return result == ncclRemoteError ? "remote process exited" : "invalid use";
}

const char* ncclGetLastError(ncclComm_t) { return ""; }

}
