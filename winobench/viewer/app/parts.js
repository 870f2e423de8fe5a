// Parts that the pages on questions share.

import { html, useData, useEffect, useState } from './base.js'
import { VERDICTS, cellName, signed, textOf, verdict } from './answers.js'
import * as source from './source.js'

export const SHOWN_RUNS = 6

// The number of a list's page in an address, from 0. The first page has none.
export const pageOf = ({ page }) => Math.max(1, Number.parseInt(page, 10) || 1) - 1

export function Search({ label, value, onSearch }) {
  return html`<label class="wide">${label}<input type="search" value=${value} onInput=${event => onSearch(event.target.value)} autocomplete="off" spellcheck=${false} /></label>`
}

export function Select({ label, value, choices, onChange }) {
  return html`<label>${label}<select value=${value} onChange=${event => onChange(event.target.value)}>
    ${choices.map(([choice, said]) => html`<option key=${choice} value=${choice} selected=${choice === value}>${said}</option>`)}
  </select></label>`
}

// A task of a run, or a sentence.
export function taskOf(run, task) {
  const about = run.tasks[task]
  if (!about) throw new Error(run.failed?.[task] ? `The task ${task} of ${run.label} has failed: ${run.failed[task]}` : `${run.label} has no task ${task}.`)
  if (about.rows === null) throw new Error(`${run.label} has no table of the questions of ${task}: its folder lacks examples/${task}.parquet, or it cannot be read.`)
  return about
}

// The other finished runs that have a task, those named first.
export async function othersWith(slug, task, named = []) {
  const { runs } = await source.runs()
  const place = other => (named.includes(other) ? named.indexOf(other) : named.length)
  return runs.filter(run => run.slug !== slug && run.status === 'finished' && run.tasks.includes(task)).sort((one, other) => place(one.slug) - place(other.slug))
}

export function Verdict({ row, withWords }) {
  const said = verdict(row)
  if (!said) return null
  const [sign, words] = VERDICTS[said]
  return html`<span class=${`outcome ${said}`} title=${words}><span aria-hidden="true">${sign}</span><span class=${withWords ? '' : 'unseen'}> ${words}</span></span>`
}

// An image that the run has kept, by the SHA-256 of its pixels.
export function Picture({ slug, task, sha256, about, name, large }) {
  const state = useData(() => (about.has_gallery === false ? null : source.image(slug, task, sha256).catch(() => null)), [slug, task, sha256])
  const [address, setAddress] = useState(null)
  useEffect(() => {
    if (!state.value) return setAddress(null)
    const made = URL.createObjectURL(state.value)
    setAddress(made)
    return () => URL.revokeObjectURL(made)
  }, [state.value])
  const size = large ? 'picture large' : 'picture'
  if (address) return html`<img class=${size} src=${address} alt=${name} title=${sha256} />`
  if (!large) return null
  if (state.loading) return html`<span class=${`${size} none`} aria-hidden="true"></span>`
  return html`<span class="unkept" title=${`SHA-256 of its pixels: ${sha256}`}>${name} <small>(not kept by the run)</small></span>`
}

// A cell's content in words: the text, or the image's number.
export function cellText(asked, cell) {
  if (cell === null || cell === undefined) return null
  if (asked.isText) return asked.options[cell]
  return asked.target !== null && asked.texts.length > 1 ? asked.texts[cell] : cellName(asked, cell)
}

// Columns of lists of questions in files. Rows: { place, asked, margin, others: [{ label, asked }] }.
export const listColumns = (labels = []) => [
  { key: 'id', label: 'id', value: ({ asked }) => asked.id },
  { key: 'groups', label: 'groups', value: ({ asked }) => (asked.groups ?? []).join('; ') },
  { key: 'question', label: 'question', value: ({ asked }) => textOf(asked) },
  { key: 'right', label: 'right answer', value: ({ asked }) => cellText(asked, asked.target) },
  { key: 'chosen', label: 'answer', value: ({ asked }) => cellText(asked, asked.chosen) },
  { key: 'verdict', label: 'verdict', value: ({ asked }) => verdict(asked) },
  ...labels.map((label, number) => ({ key: `verdict_${number + 1}`, label, value: ({ others }) => others[number] && verdict(others[number]) })),
  { key: 'margin', label: 'margin', value: ({ margin }) => margin, isNumber: true },
  { key: 'row', label: 'row', value: ({ place }) => place, isNumber: true },
]

export const marginText = value => (value === null || value === undefined || Number.isNaN(value) ? null : html`<span class="margin" title="margin">${signed(value)}</span>`)
