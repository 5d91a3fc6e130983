//go:build rocksdb

#include "shim.h"

#include "scratchfs.h"

#include <rocksdb/advanced_options.h>
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/options.h>
#include <rocksdb/sst_file_reader.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/table.h>
#include <rocksdb/unique_id.h>
#include <rocksdb/utilities/checkpoint.h>
#include <rocksdb/write_batch.h>
#include <rocksdb/write_buffer_manager.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>
#ifdef __GLIBC__
#include <malloc.h>
#endif

using namespace rocksdb;

struct ms_db {
  std::unique_ptr<DB> db;
  std::shared_ptr<Cache> cache;
  WriteOptions write;
  ReadOptions read;
  // Reused by ms_get.
  std::vector<Slice> keys;
  std::vector<PinnableSlice> pinned;
  std::vector<Status> statuses;
  std::vector<ms_value> values;
  // Reused by ms_tables.
  std::string names;
  // Counted in cached.
  uint64_t cache_bytes = 0, block_bytes = 0;
};

struct ms_iter {
  std::string end;
  Slice end_slice;
  std::unique_ptr<Iterator> it;
  std::string buf;
};

struct ms_sst {
  std::unique_ptr<SstFileWriter> writer;
};

namespace {

char* message(const Status& s) { return s.ok() ? nullptr : strdup(s.ToString().c_str()); }

Slice slice(const char* data, size_t size) { return size == 0 ? Slice() : Slice(data, size); }

Options options(const ms_options& o, const std::shared_ptr<Cache>& cache) {
  Options op;
  op.env = millstream::scratch_env();
  op.create_if_missing = true;
  op.compression = o.compression == 0 ? kLZ4Compression : o.compression == 1 ? kZSTD : kNoCompression;

  // One budget for memtables: a database alone never has more than a quarter of it in the memtable that it writes,
  // so that a flush overlaps with writing.
  op.write_buffer_size = std::max<uint64_t>(o.write_buffer_bytes / 4, 512 << 10);
  op.max_write_buffer_number = 4;
  if (cache) op.write_buffer_manager = std::make_shared<WriteBufferManager>(o.write_buffer_bytes, cache);

  op.target_file_size_base = o.file_bytes;
  op.max_bytes_for_level_base = std::max(op.target_file_size_base * 2, 4 * uint64_t(op.write_buffer_size));
  op.level_compaction_dynamic_level_bytes = true;
  if (o.universal) op.compaction_style = kCompactionStyleUniversal;
  op.max_background_jobs = o.background_jobs;
  op.disable_auto_compactions = o.paused;

  op.db_host_id = "millstream";  // else every table that is uploaded carries the name of the machine

  // Nothing here must survive the process: no log to keep, no flush on close.
  op.avoid_flush_during_shutdown = true;
  op.max_manifest_file_size = 4 << 20;
  op.info_log_level = WARN_LEVEL;
  op.keep_log_file_num = 1;
  op.max_log_file_size = 1 << 20;
  op.stats_dump_period_sec = 0;
  op.stats_persist_period_sec = 0;

  BlockBasedTableOptions t;
  t.block_cache = cache;
  t.no_block_cache = !cache;
  t.block_size = o.block_bytes;
  t.format_version = 5;
  // Index and filters grow with the state, so they are counted and evicted with the rest; those of the youngest files
  // are used by every read. They are in partitions: the filter of a whole file is a megabyte, and where the cache is a
  // tenth of the state, reads would load and check such blocks again and again. Keeping them outside the cache, or
  // HyperClockCache instead of LRU, is not measurably faster here: one goroutine reads.
  t.index_type = BlockBasedTableOptions::kTwoLevelIndexSearch;
  t.partition_filters = true;
  t.cache_index_and_filter_blocks = bool(cache);
  t.cache_index_and_filter_blocks_with_high_priority = true;
  t.pin_l0_filter_and_index_blocks_in_cache = true;
  if (o.bloom_bits > 0) t.filter_policy.reset(NewBloomFilterPolicy(o.bloom_bits));
  op.table_factory.reset(NewBlockBasedTableFactory(t));
  return op;
}

uint64_t property(DB* db, const std::string& name) {
  uint64_t v = 0;
  return db->GetIntProperty(name, &v) ? v : 0;
}

void append_u32(std::string* s, uint32_t v) { s->append(reinterpret_cast<const char*>(&v), 4); }

// glibc gives each thread an arena of its own, and what is freed in one is of no use to the others: the memory of a
// process grows to several times what RocksDB counts. So there is one, unless the user's environment says otherwise.
void limit_arenas() {
#ifdef __GLIBC__
  static const bool once = std::getenv("MALLOC_ARENA_MAX") || mallopt(M_ARENA_MAX, 1);
  (void)once;
#endif
}

// Bytes of all caches, and bytes that went through them since memory was last given back.
std::atomic<uint64_t> cached, churn;

// churned tells that so many bytes were written, or read in blocks, each of which takes the place of another. Blocks have all
// sizes, so that room is left between them, and the process has soon twice what is in use; once for each turn of the caches it gives
// the pages back that are free. It takes a millisecond for a hundred megabytes.
void churned(uint64_t bytes) {
#ifdef __GLIBC__
  if (churn.fetch_add(bytes, std::memory_order_relaxed) + bytes < cached.load(std::memory_order_relaxed)) return;
  churn.store(0, std::memory_order_relaxed);
  malloc_trim(0);
#else
  (void)bytes;
#endif
}

}  // namespace

extern "C" {

char* ms_open(const char* path, const ms_options* o, ms_db** out) {
  limit_arenas();
  auto h = std::make_unique<ms_db>();
  h->cache = NewLRUCache(o->cache_bytes);
  Options op = options(*o, h->cache);
  DB* db = nullptr;
  Status s = o->read_only ? DB::OpenForReadOnly(op, path, &db) : DB::Open(op, path, &db);
  if (!s.ok()) return message(s);
  h->db.reset(db);
  h->write.disableWAL = true;
  h->cache_bytes = o->cache_bytes;
  h->block_bytes = o->block_bytes;
  cached += h->cache_bytes;
  *out = h.release();
  return nullptr;
}

void ms_close(ms_db* h) {
  h->pinned.clear();
  cached -= h->cache_bytes;
  delete h;
}

char* ms_resume(ms_db* h) { return message(h->db->EnableAutoCompaction({h->db->DefaultColumnFamily()})); }

void ms_tables(ms_db* h, const char** names, size_t* size) {
  std::vector<LiveFileMetaData> live;
  h->db->GetLiveFilesMetaData(&live);
  h->names.clear();
  for (const auto& f : live) h->names += f.relative_filename + "\n";
  *names = h->names.data();
  *size = h->names.size();
}

char* ms_get(ms_db* h, const char* keys, size_t start, const ptrdiff_t* ends, size_t n, const ms_value** values) {
  if (h->pinned.size() < n) {
    h->keys.resize(n);
    h->pinned = std::vector<PinnableSlice>(n);
    h->statuses.resize(n);
    h->values.resize(n);
  }
  for (size_t i = 0; i < n; i++) {
    h->keys[i] = slice(keys + start, size_t(ends[i]) - start);
    start = size_t(ends[i]);
  }
  h->db->MultiGet(h->read, h->db->DefaultColumnFamily(), n, h->keys.data(), h->pinned.data(), h->statuses.data());
  for (size_t i = 0; i < n; i++) {
    const Status& s = h->statuses[i];
    if (s.ok()) {
      // An empty value may have no memory, which would mean that there is none.
      h->values[i] = {h->pinned[i].size() ? h->pinned[i].data() : "", h->pinned[i].size()};
    } else if (s.IsNotFound()) {
      h->values[i] = {nullptr, 0};
    } else {
      return message(s);
    }
  }
  *values = h->values.data();
  churned(n * h->block_bytes);
  return nullptr;
}

void ms_unpin(ms_db* h) {
  for (auto& p : h->pinned) p.Reset();
}

char* ms_write(ms_db* h, const char* batch, size_t size) {
  churned(size);
  WriteBatch b(std::string(batch, size));
  return message(h->db->Write(h->write, &b));
}

ms_iter* ms_iter_new(ms_db* h, const char* start, size_t start_size, const char* end, size_t end_size) {
  auto it = std::make_unique<ms_iter>();
  ReadOptions ro;
  if (end) {
    it->end.assign(end, end_size);
    it->end_slice = it->end;
    ro.iterate_upper_bound = &it->end_slice;
  }
  it->it.reset(h->db->NewIterator(ro));
  it->it->Seek(slice(start, start_size));
  return it.release();
}

void ms_iter_free(ms_iter* it) { delete it; }

char* ms_iter_next(ms_iter* it, size_t limit, const char** data, size_t* size) {
  it->buf.clear();
  for (; it->it->Valid() && it->buf.size() < limit; it->it->Next()) {
    Slice k = it->it->key(), v = it->it->value();
    append_u32(&it->buf, uint32_t(k.size()));
    append_u32(&it->buf, uint32_t(v.size()));
    it->buf.append(k.data(), k.size());
    it->buf.append(v.data(), v.size());
  }
  *data = it->buf.data();
  *size = it->buf.size();
  return message(it->it->status());
}

char* ms_flush(ms_db* h, int wait) {
  FlushOptions f;
  f.wait = wait;
  f.allow_write_stall = true;
  return message(h->db->Flush(f));
}

char* ms_checkpoint(ms_db* h, const char* dir) {
  Checkpoint* c = nullptr;
  Status s = Checkpoint::Create(h->db.get(), &c);
  if (!s.ok()) return message(s);
  s = std::unique_ptr<Checkpoint>(c)->CreateCheckpoint(dir);
  return message(s);
}

char* ms_sst_new(const ms_options* o, const char* path, ms_sst** out) {
  auto sst = std::make_unique<ms_sst>();
  sst->writer = std::make_unique<SstFileWriter>(EnvOptions(), options(*o, nullptr));
  Status s = sst->writer->Open(path);
  if (!s.ok()) return message(s);
  *out = sst.release();
  return nullptr;
}

char* ms_sst_add(ms_sst* sst, const char* data, size_t size) {
  const char* end = data + size;
  while (data < end) {
    uint32_t k, v;
    memcpy(&k, data, 4);
    memcpy(&v, data + 4, 4);
    Status s = sst->writer->Put(Slice(data + 8, k), Slice(data + 8 + k, v));
    if (!s.ok()) return message(s);
    data += 8 + size_t(k) + v;
  }
  return nullptr;
}

char* ms_sst_end(ms_sst* sst, int drop) {
  std::unique_ptr<ms_sst> owned(sst);
  return drop ? nullptr : message(owned->writer->Finish());
}

char* ms_ingest(ms_db* h, const char* const* paths, size_t n) {
  IngestExternalFileOptions o;
  o.move_files = true;
  o.write_global_seqno = false;  // it would change files that other links share
  return message(h->db->IngestExternalFile(std::vector<std::string>(paths, paths + n), o));
}

char* ms_file_id(const char* path, char* id) {
  SstFileReader reader((Options()));
  Status s = reader.Open(path);
  std::string unique;
  if (s.ok()) s = GetExtendedUniqueIdFromTableProperties(*reader.GetTableProperties(), &unique);
  if (s.ok() && unique.size() != 24) s = Status::Corruption("unique identifier of another size");
  if (s.ok()) memcpy(id, unique.data(), 24);
  return message(s);
}

uint64_t ms_memory_bytes(ms_db* h) {
  // Memtables, indexes and filters are charged to the cache.
  return h->cache->GetUsage() + property(h->db.get(), DB::Properties::kEstimateTableReadersMem);
}

uint64_t ms_disk_bytes(ms_db* h) { return property(h->db.get(), DB::Properties::kTotalSstFilesSize); }

}  // extern "C"
