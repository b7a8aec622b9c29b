import java.io.BufferedReader;
import java.io.File;
import java.io.FileReader;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.HexFormat;
import java.util.Optional;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.LogOffsetMetadata;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * Prints Kafka's verdict on each batch of a file, whose lines are "KIND NOW BATCH" or "producer 0 BATCH BATCH ...", batches in hex.
 *
 * KIND names the settings of the topic, separated by "+". A verdict is "ERROR"; or, for a batch that is accepted,
 * "0 ATTRIBUTES BASE_TIMESTAMP MAX_TIMESTAMP RECORDS", where RECORDS is a hash of what a consumer reads, or "unreadable".
 * Verdicts on a producer's batches are "ERROR" or the offset of the stored batch.
 */
public class LogVerdicts {
    static final TopicPartition PARTITION = new TopicPartition("topic", 0);
    static Method DUPLICATE;
    static File FOLDER;
    static final LogValidator.MetricsRecorder METRICS = proxy(LogValidator.MetricsRecorder.class, 0);

    @SuppressWarnings("unchecked")
    static <T> T proxy(Class<T> type, long now) {
        return (T) Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type},
            (self, method, arguments) -> method.getReturnType() == long.class ? now : null);
    }

    static ByteBuffer bytes(String hex) {
        return ByteBuffer.wrap(HexFormat.of().parseHex(hex));
    }

    static int code(Throwable error) {
        return Errors.forException(error instanceof RecordValidationException e ? e.invalidException() : error).code();
    }

    static CompressionType target(String kind, CompressionType source) {
        for (String part : kind.split("\\+")) {
            if (part.equals("uncompressed")) return CompressionType.NONE;
            for (CompressionType type : CompressionType.values()) if (type.name.equals(part)) return type;
        }
        return source;
    }

    static String verdict(String kind, long now, String hex) {
        try {
            MemoryRecords records = MemoryRecords.readableRecords(bytes(hex));
            CompressionType source = records.firstBatch().compressionType();
            boolean limited = kind.equals("limited");
            LogValidator validator = new LogValidator(records, PARTITION, proxy(Time.class, now), source,
                Compression.of(target(kind, source)).build(), kind.contains("compact"), RecordBatch.MAGIC_VALUE_V2,
                kind.contains("append-time") ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
                limited ? 10_000 : Long.MAX_VALUE, limited ? 10_000 : kind.contains("unlimited") ? Long.MAX_VALUE : 3_600_000, 0, AppendOrigin.CLIENT);
            MemoryRecords stored = validator.validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(0), METRICS, BufferSupplier.NO_CACHING)
                .validatedRecords();
            ByteBuffer header = stored.buffer();
            return "0 " + header.getShort(21) + " " + header.getLong(27) + " " + header.getLong(35) + " " + read(stored);
        } catch (Throwable error) {
            return "" + code(error);
        }
    }

    /** A hash of all records as a consumer reads them. */
    static String read(MemoryRecords stored) {
        long hash = 0;
        try {
            for (MutableRecordBatch batch : stored.batches()) {
                batch.ensureValid();
                try (CloseableIterator<Record> records = batch.streamingIterator(BufferSupplier.NO_CACHING)) {
                    while (records.hasNext()) {
                        Record record = records.next();
                        hash = hash * 31 + record.offset();
                        hash = hash * 31 + record.timestamp();
                        hash = hash * 31 + record.keySize();
                        hash = hash * 31 + record.valueSize();
                        for (Header header : record.headers()) hash = hash * 31 + header.key().length();
                    }
                }
            }
        } catch (Throwable error) {
            return "unreadable";
        }
        return "" + hash;
    }

    /** One producer's batches, one after the other, as UnifiedLog checks them. */
    static String verdicts(String[] batches) throws Exception {
        ProducerStateManager producers = new ProducerStateManager(PARTITION, FOLDER, 60_000, new ProducerStateManagerConfig(86_400_000, false), Time.SYSTEM);
        long offset = 0;
        StringBuilder out = new StringBuilder();
        for (String hex : batches) {
            MutableRecordBatch batch = MemoryRecords.readableRecords(bytes(hex)).batches().iterator().next();
            Optional<?> duplicate = producers.lastEntry(batch.producerId()).flatMap(entry -> {
                try {
                    return (Optional<?>) DUPLICATE.invoke(entry, batch);
                } catch (ReflectiveOperationException error) {
                    throw new IllegalStateException(error);
                }
            });
            if (duplicate.isPresent()) {
                out.append(((BatchMetadata) duplicate.get()).firstOffset()).append(' ');
                continue;
            }
            batch.setLastOffset(offset + batch.lastOffset() - batch.baseOffset());
            try {
                ProducerAppendInfo info = producers.prepareUpdate(batch.producerId(), AppendOrigin.CLIENT);
                info.append(batch, Optional.of(new LogOffsetMetadata(offset)));
                producers.update(info);
                out.append(offset).append(' ');
                offset = batch.lastOffset() + 1;
            } catch (ApiException error) {
                out.append('E').append(code(error)).append(' ');
            }
        }
        return out.toString().trim();
    }

    public static void main(String[] args) throws Exception {
        DUPLICATE = ProducerStateEntry.class.getDeclaredMethod("findDuplicateBatch", RecordBatch.class);
        DUPLICATE.setAccessible(true);
        FOLDER = Files.createTempDirectory("verdicts").toFile();
        FOLDER.deleteOnExit();
        StringBuilder out = new StringBuilder();
        try (BufferedReader lines = new BufferedReader(new FileReader(args[0]))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                String[] parts = line.split(" ", 3);
                out.append(parts[0].equals("producer") ? verdicts(parts[2].split(" ")) : verdict(parts[0], Long.parseLong(parts[1]), parts[2]));
                out.append('\n');
            }
        }
        System.out.print(out);
    }
}
