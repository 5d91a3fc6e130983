//go:build rocksdb

// The calls that the Go part makes into RocksDB: few, and each for many keys.
//
// A function that may fail returns an error message to be freed by the caller, or NULL. Memory that a call hands out
// belongs to the database or iterator and is valid until the next call on it.
#pragma once
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct ms_db ms_db;
typedef struct ms_iter ms_iter;
typedef struct ms_sst ms_sst;

typedef struct {
  uint64_t cache_bytes;         // block cache, with index, filters and memtables in it
  uint64_t write_buffer_bytes;  // all memtables
  uint64_t file_bytes;
  uint32_t block_bytes;
  int32_t bloom_bits;  // negative: none
  int32_t compression; // 0 LZ4, 1 ZSTD, 2 none
  int32_t universal;
  int32_t background_jobs;
  int32_t read_only;
  int32_t paused;  // no compaction until ms_resume
} ms_options;

typedef struct {
  const char* data;  // NULL: the key has no entry
  size_t size;
} ms_value;

char* ms_open(const char* path, const ms_options* o, ms_db** out);
void ms_close(ms_db* db);
char* ms_resume(ms_db* db);
// The names of the tables that the database consists of, each followed by a newline.
void ms_tables(ms_db* db, const char** names, size_t* size);

// Key i is keys[ends[i-1], ends[i]), the first one from start. The values stay pinned until ms_unpin.
char* ms_get(ms_db* db, const char* keys, size_t start, const ptrdiff_t* ends, size_t n, const ms_value** values);
void ms_unpin(ms_db* db);

// batch is a WriteBatch as RocksDB represents it.
char* ms_write(ms_db* db, const char* batch, size_t size);

// An iterator over [start, end); end NULL is no end.
ms_iter* ms_iter_new(ms_db* db, const char* start, size_t start_size, const char* end, size_t end_size);
void ms_iter_free(ms_iter* it);
// Copies the next entries, as long as less than limit bytes are copied: u32 key size, u32 value size, key, value. None
// at the end.
char* ms_iter_next(ms_iter* it, size_t limit, const char** data, size_t* size);

char* ms_flush(ms_db* db, int wait);
// Links a consistent copy of the database into dir, which must not exist.
char* ms_checkpoint(ms_db* db, const char* dir);
// Writes entries, laid out as ms_iter_next gives them and in ascending order, into files to ingest.
char* ms_sst_new(const ms_options* o, const char* path, ms_sst** out);
char* ms_sst_add(ms_sst* sst, const char* data, size_t size);
// Finishes the file, unless it is to be dropped, and frees sst.
char* ms_sst_end(ms_sst* sst, int drop);
char* ms_ingest(ms_db* db, const char* const* paths, size_t n);

// id holds 24 bytes: RocksDB's unique identifier of the content of a file.
char* ms_file_id(const char* path, char* id);

uint64_t ms_memory_bytes(ms_db* db);
uint64_t ms_disk_bytes(ms_db* db);

#ifdef __cplusplus
}
#endif
