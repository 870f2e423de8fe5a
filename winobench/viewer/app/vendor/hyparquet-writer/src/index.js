export { parquetWrite, parquetWriteBuffer } from './write.js'
export { parquetWriteRows } from './write-rows.js'
export { autoSchemaElement, schemaFromColumnData } from './schema.js'
export { ByteWriter } from './bytewriter.js'
export { ParquetWriter } from './parquet-writer.js'
export { geojsonToWkb } from './wkb.js'

/**
 * @typedef {import('hyparquet').KeyValue} KeyValue
 * @typedef {import('hyparquet').SchemaElement} SchemaElement
 * @typedef {import('../src/types.d.ts').BasicType} BasicType
 * @typedef {import('../src/types.d.ts').ColumnSource} ColumnSource
 * @typedef {import('../src/types.d.ts').ParquetWriteOptions} ParquetWriteOptions
 * @typedef {import('../src/types.d.ts').Writer} Writer
 */
